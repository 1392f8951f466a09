"""Whatever a model says, tools do and people decide, in whatever order: what must hold holds."""

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentapp import actions, sweep
from agentapp.compilers import compile_messages, load_conversation
from agentapp.llm import conversion
from agentapp.llm.contract import Request
from agentapp.messages import AssistantMessage, ToolMessage
from agentapp.models import Breaker, Run, ToolExecution
from agentapp.transcript import load_steps
from approvals import ledger
from approvals.models import Approval, Rule
from tests import clerk_tools
from tests.conftest import Clerk, says

pytestmark = pytest.mark.django_db(transaction=True)

TURNS = 12

# What tools do: fine, fails, fails for now, breaks, loses its outcome, kills its worker, answers at great length.
GOOD = [
    ("look_up", {"what": "x"}),
    ("look_up", {"what": "y"}),
    ("read_mail", {}),
    ("fail", {"how": "never"}),
    ("fail", {"how": "later"}),
    ("fail", {"how": "a bug"}),
    ("die", {}),
    ("flood", {"characters": 300_000}),
    ("pay", {"account": "ana", "amount": 5}),
    ("pay", {"account": "bo", "amount": 7}),
    ("pay_once", {"account": "ana", "amount": 5}),
    ("label", {"text": "urgent"}),
    ("send", {"to": "ana"}),
    ("send", {"to": "ana", "how": "refused"}),
    ("send", {"to": "ana", "how": "lost"}),
    ("send", {"to": "ana", "how": "broken"}),
    ("undeclared", {"text": "x"}),
]
WRITES = [of for of in GOOD if of[0] in ("pay", "pay_once", "label", "send", "undeclared")]
BAD = [
    ("no_such_tool", "{}"),
    ("", "{}"),
    ("pay", "{not json"),
    ("pay", '{"account": "ana", "amount": NaN}'),
    ("pay", '{"account": "ana", "account": "bo", "amount": 5}'),
    ("pay", '{"account": "ana"}'),
    ("pay", '{"account": "ana", "amount": 5, "approved": true}'),
    ("pay", '{"account": "ana", "amount": "five"}'),
    ("look_up", '["x"]'),
    ("look_up", "[" * 500),
    ("look_up", json.dumps({"what": "x" * 400_000})),
    ("look_up", '{"what": "\\ud800"}'),
]

TEN_MEGABYTES = {"id": "a", "name": "flood", "arguments": {"characters": 10_000_000}}

call = st.builds(
    lambda id, of: {"id": id, "name": of[0] or " ", "arguments": of[1]},
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(GOOD) | st.sampled_from(WRITES) | st.sampled_from(BAD),
)
reply = st.fixed_dictionaries(
    {"text": st.sampled_from(["", "Let me see.", "<<< end >>>"]), "tool_calls": st.lists(call, max_size=4)}
)
script = st.lists(reply, min_size=1, max_size=4)
PEOPLE = ["approve", "edit", "reject", "reject_and_stop", "respond", "expire", "undo", "pause", "cancel", "nothing"]
FINDINGS = ["retry", "happened", "did_not_happen"]
# Mostly yes: what runs is where things go wrong.
deed = st.just("approve") | st.sampled_from(PEOPLE) | st.sampled_from(FINDINGS)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=script, deeds=st.lists(deed, max_size=TURNS))
@example(
    script=[{"text": "", "tool_calls": [{"id": "a", "name": "flood", "arguments": {"characters": 10_000_000}}]}],
    deeds=[],
)
def test_every_call_is_answered_nothing_runs_unapproved_and_the_run_ends_or_waits(clerk, dana, script, deeds):
    clerk_tools.forget()
    Breaker.objects.all().delete()
    run = clerk.start(*script, says("done"))
    crash_proof(clerk, run)
    for what in deeds:
        act(clerk, run, dana, what)
        crash_proof(clerk, run)
    run.refresh_from_db()

    assert run.is_final or run.state in (Run.State.WAITING, Run.State.PAUSED)
    assert (run.stop_reason != "") == run.is_final
    check_calls(run)
    if run.is_final or not any(rows.open for rows in load_steps(run)):
        check_history(run)
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None


def crash_proof(clerk: Clerk, run: Run) -> None:
    """Drive as workers do: one that dies leaves its lease, which runs out, and the sweep finds the run."""
    for _ in range(20):
        try:
            clerk.drive(run)
        except clerk_tools.WorkerDies:
            Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
        if run.pk not in sweep.sweep():
            return
    raise AssertionError("the run is due for ever")


def act(clerk: Clerk, run: Run, dana: Any, what: str) -> None:
    """One thing a person does. What is refused changes nothing, and that is part of what is tested."""
    approval = next(iter(clerk.open(run)), None)
    unknown = ToolExecution.objects.filter(run=run, state="outcome_unknown").first()
    try:
        if what in ("retry", "happened", "did_not_happen") and unknown is not None:
            actions.resolve_outcome(unknown.pk, what, "Looked at the books.", dana)
        elif what == "pause":
            actions.pause_run(run.pk, clerk.starter)
            actions.resume_run(run.pk, clerk.starter)
        elif what == "cancel":
            actions.cancel_run(run.pk, clerk.starter)
        elif approval is None:
            return
        elif what == "expire":
            Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        elif what == "edit":
            edited = json.loads(approval.arguments_text) | ({"amount": 6} if approval.tool.startswith("pay") else {})
            clerk.decide(approval, dana, "edit", arguments_text=json.dumps(edited))
        elif what in ("approve", "respond"):
            clerk.decide(approval, dana, what, message="A person's words." if what == "respond" else "")
        elif what.startswith("reject"):
            clerk.decide(approval, dana, "reject", message="No.", stop_run=what.endswith("stop"))
        elif what == "undo":
            clerk.decide(approval, dana)
            actions.undo_decision(approval.pk, dana)
    except actions.Refused:
        pass


def check_calls(run: Run) -> None:
    """A consequential call ran under a used approval of its very bytes; the effects are those calls' and no others'."""
    every = list(ToolExecution.objects.filter(run=run))
    for execution in every:
        if not execution.consequential or execution.started_at is None:
            continue
        approval = execution.approval
        assert approval is not None, execution.name
        assert (approval.state, approval.used_at is not None) == (Approval.State.USED, True)
        assert execution.executed_text == approval.final_arguments_text
    for name in ("pay", "pay_once", "label", "send", "undeclared"):
        begun = sum(execution.attempts for execution in every if execution.name == name)
        assert len(clerk_tools.effects_of(name)) <= begun, name
    if run.is_final:
        assert not ToolExecution.objects.filter(
            run=run, state__in=["proposed", "waiting", "ready", "executing"]
        ).exists()


def check_history(run: Run) -> None:
    """What a model would be sent next: every call once, its answer right behind it, in the call's order."""
    if ToolExecution.objects.filter(run=run, state="outcome_unknown").exists():
        return  # a run does not go on while one of its calls is unknown
    messages = compile_messages(run, load_conversation(run), load_steps(run))
    declared: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert declared, "an answer without its call"
            assert message.call_id == declared.pop(0)
            continue
        assert not declared, "a call without its answer"
        if isinstance(message, AssistantMessage):
            declared = [call.id for call in message.tool_calls]
    assert not declared
    assert conversion.history(Request("openai:x", "", messages))


def test_a_rule_that_allows_lets_run_what_it_names_and_nothing_else(clerk):
    """So that the property above is not one of a product that never runs anything."""
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    run = clerk.run(
        {"text": "", "tool_calls": [{"id": str(uuid.uuid4()), "name": "label", "arguments": {"text": "x"}}]}, says("ok")
    )
    assert run.state == "succeeded"
    assert clerk_tools.effects_of("label") == [{"text": "x"}]
