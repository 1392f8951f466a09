"""What the page of a tool says about where its contract comes from, by the kind of its source."""

from dataclasses import dataclass

from agentapp.models import ToolSource


@dataclass(frozen=True)
class Words:
    """Sentences for one kind of source."""

    card: str
    """Who words a request, and where the words are changed."""
    safety: str
    contract: str
    first: str
    """When the first version was made."""
    declares: str
    """Who says which effect class it has, before its name."""


BY_KIND: dict[str, Words] = {
    ToolSource.Kind.PYTHON: Words(
        card="The words of a request come from the tool's code, never from a model. Change them there; here you see "
        "how they describe a call.",
        safety="Yours to set: reading the tools from code again never touches it.",
        contract="Read from code.",
        first="the tool was read from code",
        declares="The code of",
    ),
    ToolSource.Kind.OPENAPI: Words(
        card="The words of a request are made from the service's document, never by a model. Here you see how they "
        "describe a call.",
        safety="Yours to set: importing the document again can make it stricter, never weaker.",
        contract="Read from the service's document.",
        first="the document was imported",
        declares="The document of",
    ),
    ToolSource.Kind.MCP: Words(
        card="A server gives no words for a request: people read the tool's name and the arguments of the call.",
        safety="Yours to set: asking the server again never touches it, whatever it says.",
        contract="Listed by its server, and as you accepted it.",
        first="the server listed the tool",
        declares="The server of",
    ),
    ToolSource.Kind.AGENT: Words(
        card="The words of a request are the same for every agent that is asked, and never come from a model.",
        safety="Yours to set: what the agent does is judged call by call in its own run.",
        contract="Made from the agent that is asked: its name, its description and its routes.",
        first="the agent could be asked",
        declares="The agent behind",
    ),
}


# A change of any contract does this.
_VERSIONS = "A change makes a new version; open requests about the old one are set aside and asked again."


def descriptions(source: ToolSource) -> dict[str, str]:
    """What stands under the headings of a tool's page, by heading."""
    words = BY_KIND[source.kind]
    return {
        "What people see": words.card,
        "Safety": words.safety,
        "Contract and its versions": f"{words.contract} {_VERSIONS}",
    }
