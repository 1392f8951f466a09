"""What the loop may rely on, whichever driver decides."""

import subprocess
import sys

import pytest

from agentapp.drivers import DRIVERS, get_driver
from agentapp.drivers.base import ModelError, StepRequest
from agentapp.messages import Reply, ToolCall, UserMessage
from tests.agentapp.drivers.binding import bound
from tests.wire import DIALECTS, Answer, ProviderServer

DIALECT = DIALECTS["openai"]
AGENT = {"instructions": "", "model": DIALECT.model, "model_settings": {}, "parallel_tool_calls": True}
REPLY = {
    "text": "Let me look.",
    "tool_calls": [
        {"id": "a", "name": "read_order", "arguments": {"order": "A-1"}},
        {"id": "b", "name": "refund", "arguments": '{"order": '},
    ],
}


# React reads its decisions from the text, and guidelines turn one question into several; they have tests of their own.
@pytest.mark.parametrize("name", sorted({*DRIVERS} - {"react", "guided"}))
def test_a_driver_turns_a_state_into_one_reply(name: str, provider: ProviderServer) -> None:
    calls = [(call["id"], call["name"], call["arguments"]) for call in REPLY["tool_calls"]]
    provider.answer(Answer(DIALECT.reply(REPLY["text"], calls)))
    reply = bound(name).next_step(StepRequest("run", 1, AGENT, [REPLY], (UserMessage("Hi."),), ()))
    assert isinstance(reply, Reply)
    assert reply.text == "Let me look."
    assert [(call.id, call.name) for call in reply.tool_calls] == [("a", "read_order"), ("b", "refund")]
    assert reply.tool_calls[1] == ToolCall("b", "refund", '{"order": ')
    assert reply.model
    assert reply.finish_reason == "tool_call"
    assert reply.usage.cost is not None


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_a_driver_that_has_no_reply_raises_a_model_error(name: str, provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.error("No.", "invalid_request_error"), status=400))
    with pytest.raises(ModelError) as caught:
        bound(name).next_step(StepRequest("run", 1, AGENT, None, (UserMessage("Hi."),), ()))
    assert (caught.value.retryable, caught.value.retry_after) == (False, None)


def test_an_unknown_driver_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        LookupError, match=r"no driver 'psychic'\. Known drivers: guided, react, scripted, tool_calling"
    ):
        get_driver("psychic")


def test_drivers_load_no_provider_and_no_table_before_they_are_asked() -> None:
    """A web process starts without the seconds and megabytes that providers' clients take."""
    code = (
        "import sys; from agentapp.drivers import DRIVERS, get_driver; [get_driver(name) for name in DRIVERS];"
        "print([name for name in sys.modules if name.split('.')[0] in ('pydantic_ai', 'openai', 'anthropic')"
        " or name == 'google.genai' or name.startswith('agentapp.models')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
