"""The call of a request as it waits now, or as somebody's draft would have it: its form, its words, what differs."""

from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from agentapp import locked
from agentapp.cards import words_of
from agentapp.console import disguised, origins, schema_form
from agentapp.console.differences import Line, differences
from agentapp.console.schema_form import SchemaForm
from agentapp.models import Tool, ToolExecution
from approvals import lens, planned
from approvals.digest import canonical, parse
from approvals.models import Approval

MAX_LABEL = 60

# The effects that get a badge, by the icon their tool gives them.
ACTS = {"money": "Moves money", "trash": "Deletes", "mail": "Contacts a person"}


@dataclass
class Shown:
    """The call as it waits now, or as the draft would have it."""

    form: SchemaForm
    text: str
    title: str
    sentence: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    button: str
    edited: bool
    # How many arguments differ from what waits now, not from what the agent proposed.
    own_changes: int = 0
    lines: list[Line] = field(default_factory=list)
    # The arguments that contain something from outside.
    outside: list[str] = field(default_factory=list)
    # The texts that are not what they look like.
    disguises: disguised.Notes | None = None
    # None: the tool is gone.
    tool: Tool | None = None

    @property
    def acts(self) -> list[tuple[str, str]]:
        """The kinds of act among its effects, as icon and words: what people look for first."""
        icons = dict.fromkeys(str(effect.get("icon")) for effect in self.effects)
        return [(icon, ACTS[icon]) for icon in icons if icon in ACTS]


def show(approval: Approval, posted: QueryDict | None, arguments: dict[str, Any] | None = None) -> Shown:
    """The call and its words. The tool's own templates give the words for changed arguments."""
    current_text = approval.final_arguments_text or approval.arguments_text
    proposed, current = arguments_in(approval.arguments_text), arguments_in(current_text)
    current = current if arguments is None else arguments
    tool = tool_of(approval)
    form = schema_form.build(
        tool.input_schema if tool else {},
        proposed,
        current,
        locked.names(approval, tool),
        approval.secret_fields,
        posted,
    )
    text = canonical(form.arguments)
    edited = text != canonical(proposed)
    words = words_of(approval, tool if tool_unchanged(approval) else None, form.arguments)
    lines = differences(approval.arguments_text, text, approval.secret_fields)
    waits = arguments_in(current_text)
    names = {*waits, *form.arguments}
    own = sum(canonical({"": waits.get(n)}) != canonical({"": form.arguments.get(n)}) for n in names)
    outside = origins.label(form, approval, proposed)
    hidden = lens.hidden(approval.secret_fields, approval.pii_fields)
    notes = disguised.of(all_arguments(approval, form.arguments), hidden, form.labels)
    said = words.title, words.sentence, words.effects, words.button
    return Shown(form, text, *said, edited, own, lines, outside, notes, tool)


def all_arguments(approval: Approval, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the call; for a plan, its purpose and those of each of its calls, by its number."""
    if not approval.is_plan:
        return arguments
    calls = enumerate(planned.calls_in(approval.plan_text), start=1)
    beside = {name: value for name, value in arguments.items() if isinstance(value, str)}
    return {**beside, **{f"Call {number}": call.arguments for number, call in calls}}


def confirm_label(shown: Shown, number: int = 1, wanted: int = 1) -> str:
    """The text of the second press of a high risk: "Confirm refund of $214.50"."""
    verb, _, rest = shown.title.partition(" ")
    place = f" as {number} of {wanted}" if number and wanted > 1 else ""
    if shown.button and rest.startswith(shown.button):
        return f"Confirm {verb.lower()} of {shown.button}{place}"
    words = shown.title[:1].lower() + shown.title[1:]
    return f"Confirm: {words if len(words) <= MAX_LABEL else words[: MAX_LABEL - 1].rstrip() + '…'}{place}"


def execution_of(approval: Approval) -> ToolExecution | None:
    """The call a request is about. None if it was set aside and asks again under another request."""
    execution: ToolExecution | None = getattr(approval, "execution", None)
    return execution


def tool_of(approval: Approval) -> Tool | None:
    execution = execution_of(approval)
    if execution is not None and execution.tool is not None:
        return execution.tool
    return Tool.objects.filter(name=approval.tool).first()


def tool_unchanged(approval: Approval) -> bool:
    execution = execution_of(approval)
    return execution is not None and execution.tool is not None and execution.tool.version == approval.tool_version


def arguments_in(text: str) -> dict[str, Any]:
    """The arguments in a stored text; none if it holds something else."""
    value = parse(text)
    return value if isinstance(value, dict) else {}
