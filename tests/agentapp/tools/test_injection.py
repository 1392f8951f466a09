"""What the runtime fills in: a model is not told of it, and cannot set it."""

from pathlib import Path
from typing import Annotated, Any

import pytest

from agentapp.answers import answer
from agentapp.tools.base import Injected, ToolContext, ToolError, tool
from agentapp.tools.injection import NotConfigured
from tests.agentapp.tools.test_base import context
from tests.conftest import call, calls, says

SEEN: list[dict[str, Any]] = []


@tool(effect="read", trust="trusted_system")
def look(
    value: int,
    call_id: Annotated[str, Injected("call_id")],
    role: Annotated[str, Injected("actor")],
    state: ToolContext,
    key: Annotated[str, Injected("env:LOOK_KEY")],
) -> str:
    """Look, as whoever started the run."""
    SEEN.append({"value": value, "call_id": call_id, "role": role, "state": state, "key": key})
    return f"as {role}"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    monkeypatch.setenv("LOOK_KEY", "very secret")


def test_the_model_is_not_told_of_injected_arguments():
    assert set(look.input_schema["properties"]) == {"value"}
    assert look.hidden == {"call_id", "role", "state", "key"}


def test_a_value_the_model_sends_for_an_injected_argument_is_thrown_away(clerk, offer):
    offer(look)
    sent = {"value": 1, "call_id": "mine", "role": "admin", "state": {"actor": "root"}, "key": "k"}
    run = clerk.run(calls(call("real", "look", **sent)), says("done"))
    assert run.state == "succeeded"
    [seen] = SEEN
    assert (seen["call_id"], seen["role"], seen["key"]) == ("real", "sam", "very secret")
    assert seen["state"].actor == "sam"
    assert clerk.execution(run, "real").executed_text == '{"value":1}'


def test_what_was_thrown_away_is_not_shown_to_people_and_counts_as_no_change(clerk, offer, dana):
    @tool(effect="irreversible")
    def pay_as(amount: int, actor: Annotated[str, Injected("actor")]) -> str:
        """Pay."""
        return f"{actor} paid {amount}"

    offer(pay_as)
    run = clerk.run(calls(call("a", "pay_as", amount=5, actor="root")), says("done"))
    [approval] = clerk.open(run)
    assert approval.arguments_text == '{"amount":5}'
    clerk.decide(approval, dana)
    clerk.drive(run)
    assert "sam paid 5" in answer(clerk.execution(run, "a")).text
    assert "A person changed" not in answer(clerk.execution(run, "a")).text


def test_an_error_about_arguments_never_names_what_is_injected(clerk, offer):
    offer(look)
    run = clerk.run(calls(call("a", "look", value="x", state="s", key="k")), says("done"))
    execution = clerk.execution(run, "a")
    assert execution.reason == "invalid_arguments"
    assert "value" in execution.message
    for name in ("state", "key", "call_id", "role", "LOOK_KEY"):
        assert name not in execution.message


def test_a_credential_that_is_not_set_is_named_in_the_log_and_not_to_the_model(clerk, offer, monkeypatch, caplog):
    monkeypatch.delenv("LOOK_KEY")
    offer(look)
    run = clerk.run(calls(call("a", "look", value=1)), says("done"))
    execution = clerk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("fatal_error", "tool_failure")
    assert "LOOK_KEY" not in answer(execution).text
    assert "LOOK_KEY" in caplog.text
    assert SEEN == []


def test_a_setting_can_be_injected_as_it_is_now(settings):
    @tool
    def where(zone: Annotated[str, Injected("setting:TIME_ZONE")]) -> str:
        """Say where."""
        return zone

    settings.TIME_ZONE = "Europe/Prague"
    assert where.run({}, context()).data == "Europe/Prague"


def test_a_tool_that_needs_the_calls_id_is_not_run_without_one():
    with pytest.raises(ValueError, match="must be run for a call"):
        look.run({"value": 1}, context(call_id=""))
    with pytest.raises(TypeError, match="call_id"):
        look(1)


def test_asking_for_what_there_is_not_is_an_error_at_definition():
    with pytest.raises(ValueError, match="'wishes'"):

        @tool
        def wish(what: Annotated[str, Injected("wishes")]) -> str:
            """Wish."""
            return what


def test_injection_leaves_the_registered_tool_as_it_is():
    before = (look.version, dict(look.injected), look.input_schema)
    look.run({"value": 1}, context())
    look.run({"value": 2}, context(call_id="other"))
    assert [seen["call_id"] for seen in SEEN] == ["call_1", "other"]
    assert (look.version, dict(look.injected), look.input_schema) == before


def test_the_state_a_tool_is_told_is_a_copy_that_cannot_be_written(clerk, offer):
    @tool(effect="read")
    def spoil(context: ToolContext) -> str:
        """Spoil."""
        context.state["metadata"]["deep"].append("spoilt")
        try:
            context.state["input"] = "other"  # type: ignore[index]
        except TypeError as error:
            raise ToolError("cannot be written") from error
        return "spoilt"

    offer(spoil)
    metadata = {"deep": ["as it was"]}
    run = clerk.run(calls(call("a", "spoil")), says("done"), metadata=metadata)
    assert clerk.execution(run, "a").message == "cannot be written"
    run.refresh_from_db()
    assert run.metadata == metadata


def test_a_credential_of_a_tool_may_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of a file\n")
    monkeypatch.delenv("LOOK_KEY")
    monkeypatch.setenv("LOOK_KEY_FILE", str(tmp_path / "key"))
    assert Injected("env:LOOK_KEY").value(None) == "of a file"
    (tmp_path / "key").unlink()
    with pytest.raises(NotConfigured, match="LOOK_KEY_FILE"):
        Injected("env:LOOK_KEY").value(None)
