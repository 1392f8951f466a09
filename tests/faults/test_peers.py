"""Models and tools elsewhere hang, trickle, break off, or answer with garbage, nonsense, errors or far too much."""

import ipaddress
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings

from agentapp.importing import planning, writing
from agentapp.importing.planning import Given
from agentapp.models import Agent, Run, Tool, ToolExecution
from approvals import configuration, ledger
from tests.conftest import call, calls, says
from tests.faults.peers import DOCUMENT, WRONGS, Peer
from tests.faults.stage import Stack, Stage, eventually, times
from tests.faults.verdict import ended
from tests.wire import DIALECTS, KEY

pytestmark = pytest.mark.faults

OPENAI = DIALECTS["openai"]
TIMEOUT_SECONDS = 2
# Answers of a server that was asked and may have acted. An error is an answer: it says that the call failed.
LEAVES_UNKNOWN = ("hang", "trickle", "cut", "garbage", "error")


@pytest.fixture(scope="module")
def kept_stack(stage: Stage, peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    variables = {
        "OUTBOUND_NETWORKS": "127.0.0.0/24",
        "MODEL_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
        "MODEL_ATTEMPTS": "2",
        # Breakers have tests of their own: here the next run must reach the peer.
        "BREAKER_THRESHOLD": "1000",
        OPENAI.key_variable: KEY,
        OPENAI.url_variable: peer.url + OPENAI.url_path,
    }
    made = Stack(stage, tmp_path_factory.mktemp("peers"), **variables)
    before, settings.OUTBOUND_NETWORKS = settings.OUTBOUND_NETWORKS, [ipaddress.ip_network("127.0.0.0/24")]
    try:
        furnish(peer)
        made.until_ready()
        yield made
    finally:
        settings.OUTBOUND_NETWORKS = before
        made.end_all()


def furnish(peer: Peer) -> None:
    """An agent that asks the model, and one that follows a script and has the bank's tools."""
    configuration.save(Agent(name="thinker", driver="tool_calling", model=OPENAI.model), ledger.SYSTEM)
    planned = planning.plan(Given(json.dumps(DOCUMENT), name="bank", location=peer.url))
    writing.write(planned, {one.key: one.choice for one in planned.proposed}, ledger.SYSTEM)
    tools = Tool.objects.filter(source__name="bank")
    tools.update(max_attempts=1, timeout_seconds=TIMEOUT_SECONDS)
    banker = Agent(name="banker", driver="scripted", instructions="Be exact.")
    configuration.save(banker, ledger.SYSTEM)
    banker.tools.set(tools)


def banking(stack: Stack, tool: str, wrong: str) -> Any:
    script = [calls(call("a", tool, item=f"please-{wrong}")), says("It is done.")]
    return stack.people.start(*script, agent="banker")


def thinking(stack: Stack, wrong: str) -> Any:
    body = {"agent": "thinker", "input": f"please-{wrong}"}
    return stack.people.insist("sam", "/runs", body)["id"]


def rest(stack: Stack, run_ids: Any) -> None:
    stack.people.decide_everything()
    eventually(lambda: ended(run_ids), "every run to end or to be shown to a person")
    stack.people.stop()
    assert stack.people.failures == []


def named(run_id: Any) -> tuple[str, str, str]:
    run = Run.objects.get(pk=run_id)
    return run.state, run.waiting_for, run.stop_reason


def test_a_model_that_misbehaves_ends_its_run_in_a_named_state_and_no_other(stack: Stack, peer: Peer) -> None:
    started = [(wrong, thinking(stack, wrong)) for wrong in WRONGS * times(1, 10)]
    rest(stack, [run_id for _, run_id in started])
    for wrong, run_id in started:
        assert named(run_id)[0] in (Run.State.FAILED, Run.State.STOPPED), wrong
        assert "model" in Run.objects.get(pk=run_id).stop_message.lower(), wrong
        assert ledger.verify(ledger.run_chain(run_id))[1] is None
        assert peer.times_asked("/chat/", wrong) >= 1
    after = thinking(stack, "nothing")
    rest(stack, [after])
    assert named(after) == (Run.State.SUCCEEDED, "", "completed")


def test_a_read_that_misbehaves_is_told_to_the_model_and_its_run_goes_on(stack: Stack, peer: Peer) -> None:
    started = {wrong: banking(stack, "read_balance", wrong) for wrong in WRONGS}
    rest(stack, started.values())
    for wrong, run_id in started.items():
        assert named(run_id) == (Run.State.SUCCEEDED, "", "completed"), wrong
        execution = ToolExecution.objects.get(run=run_id)
        assert execution.state == ToolExecution.State.FINISHED
        assert (execution.result_status != "ok", execution.message != "") == (True, True), wrong
        assert peer.times_asked("/balance", wrong) == 1
    _next_runs_are_well(stack)


def test_a_write_that_misbehaves_is_shown_to_a_person_and_never_sent_again(stack: Stack, peer: Peer) -> None:
    started = {wrong: banking(stack, "transfer", wrong) for wrong in WRONGS}
    rest(stack, started.values())
    for wrong, run_id in started.items():
        execution = ToolExecution.objects.get(run=run_id)
        unknown = execution.state == ToolExecution.State.OUTCOME_UNKNOWN
        assert unknown or execution.took_effect, f"{wrong}: the model is told {execution.message}"
        assert unknown == (wrong in LEAVES_UNKNOWN), f"{wrong}: {execution.state} {execution.message}"
        assert named(run_id)[:2] == (("waiting", "outcome") if unknown else ("succeeded", "")), wrong
        assert peer.times_asked("/transfers", wrong) == 1
    _next_runs_are_well(stack)


def _next_runs_are_well(stack: Stack) -> None:
    after = [banking(stack, tool, "nothing") for tool in ("read_balance", "transfer")]
    rest(stack, after)
    assert {named(run_id) for run_id in after} == {(Run.State.SUCCEEDED, "", "completed")}
