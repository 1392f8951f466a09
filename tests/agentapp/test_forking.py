"""A run that has ended is forked: a new one goes on from one of its steps with something changed."""

import pytest
from django.contrib.auth.models import Group, User

from agentapp import actions, erasing
from agentapp.actions import Fork
from agentapp.descent import line_of
from agentapp.messages import ToolMessage, UserMessage
from agentapp.models import Agent, Conversation, Message, Run, Tool, ToolExecution
from approvals.models import Event, Rule
from tests import clerk_tools
from tests.conftest import Clerk, call, calls, says
from tests.forks import DONE, LOOK, PAY, acts, fork, sent


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Run:
    """Looked up, paid, and said so."""
    run = clerk.run(LOOK, PAY, DONE)
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == Run.State.SUCCEEDED
    return run


# --- What is changed --------------------------------------------------------------------------


def test_what_is_changed_is_frozen_in_it_and_all_else_is_as_it_was(clerk, paid, sam):
    Agent.objects.update(instructions="Be quick.", max_steps=7)
    forked = fork(paid, sam, 2, instructions="Be kind.", model="openai:gpt-x", model_settings={"temperature": 1})
    snapshot = forked.agent_snapshot
    said = (snapshot["instructions"], snapshot["model"], snapshot["model_settings"])
    assert said == ("Be kind.", "openai:gpt-x", {"temperature": 1})
    assert snapshot["max_steps"] == 7, "its limits are those of today"
    assert (forked.retry_of, forked.steps_kept, forked.branch) == (paid, 1, "fork")
    assert forked.changed == ["instructions", "model", "model_settings"]
    assert fork(paid, sam, 2).agent_snapshot["instructions"] == "Be exact.", "what is not changed is as it was then"


def test_another_input_has_a_title_of_its_own(clerk, paid, sam):
    forked = fork(paid, sam, input="Look only.")
    assert (forked.input, forked.title, forked.changed) == ("Look only.", "Look only.", ["input"])
    assert sent(forked) == [UserMessage("Look only.")]
    assert fork(paid, sam, input=paid.input).changed == []


def test_of_its_tools_it_has_those_the_agent_still_has(clerk, paid, sam):
    Agent.objects.get().tools.remove(Tool.objects.get(name="send"))
    tools = fork(paid, sam).agent_snapshot["tools"]
    assert "send" not in tools
    assert "send" in paid.agent_snapshot["tools"]
    added = Tool.objects.get(name="label")
    Run.objects.filter(pk=paid.pk).update(agent_snapshot=paid.agent_snapshot | {"tools": ["look_up", "pay"]})
    assert added.name not in fork(paid, sam).agent_snapshot["tools"], "it did not have that one then"


def test_the_record_says_what_was_changed_by_digest_and_who_did(clerk, paid, dana, sam):
    forked = fork(paid, sam, 2, instructions="Be kind to Ana Pereira.")
    began = Event.objects.get(type="run.queued", chain__endswith=str(forked.pk))
    assert (began.data["retry_of"], began.data["steps_kept"], began.data["branch"]) == (str(paid.pk), 1, "fork")
    assert set(began.data["changed"]) == {"instructions"}
    assert len(began.data["changed"]["instructions"]["digest"]) == 64
    assert "Pereira" not in str(began.data)
    assert "sam" in began.actor


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"model": "nonsense"}, "model"),
        ({"model_settings": {"warmth": 1}}, "settings"),
        ({"input": "  "}, "input"),
        ({"instructions": "x" * 100_001}, "instructions"),
        ({"step": 9}, "step"),
        ({"step": 0}, "step"),
        ({"step": 2, "call": 4}, "call"),
        ({"step": 2, "call": 0, "arguments": {"account": "ana", "amount": "much"}}, "amount"),
        ({"step": 2, "call": 0, "arguments": {"account": "ana"}}, "amount"),
        ({"step": 2, "call": 0, "arguments": {"account": "\u2022" * 6, "amount": 5}}, "args"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field_and_nothing_is_started(clerk, paid, sam, changed, field):
    with pytest.raises(actions.Refused) as refused:
        actions.fork_run(paid.pk, Fork(**changed), sam)
    assert refused.value.field == field
    assert Run.objects.count() == 1


# --- What counts as done ----------------------------------------------------------------------


def test_what_was_done_before_is_told_and_never_runs_again(clerk, paid, sam):
    noted = list(clerk_tools.EFFECTS)
    forked = clerk.drive(fork(paid, sam, 3, instructions="Be kind."))
    assert (forked.state, forked.answer) == (Run.State.SUCCEEDED, "Paid.")
    assert noted == clerk_tools.EFFECTS
    assert sent(forked)[:-1] == sent(paid)[:-1]


def test_what_it_did_later_stays_done_and_the_same_is_answered_from_the_record(clerk, paid, sam):
    forked = clerk.drive(fork(paid, sam, 2, instructions="Be kind."))
    assert forked.state == Run.State.SUCCEEDED
    assert len(clerk_tools.effects_of("pay")) == 1
    again = ToolExecution.objects.get(run=forked, name="pay")
    assert (again.reason, again.replay_of) == ("idempotency_key_consumed", clerk.execution(paid, "p"))
    (told,) = [m.text for m in sent(forked) if isinstance(m, ToolMessage) and m.name == "pay"]
    assert "did not run again" in told
    assert "paid 5.0 to ana" in told


def test_that_a_rule_allows_it_does_not_make_a_fork_do_it_twice(clerk, sam):
    Rule.objects.create(name="labels", tool="label", verdict="allow", order=1)
    run = clerk.run(LOOK, calls(call("x", "label", text="fragile")), DONE)
    assert len(clerk_tools.effects_of("label")) == 1
    for step in (1, 2, 3):
        assert clerk.drive(fork(run, sam, step)).state == Run.State.SUCCEEDED
    assert len(clerk_tools.effects_of("label")) == 1


def test_a_kept_act_is_not_done_again_by_a_fork_of_a_fork(clerk, sam):
    Rule.objects.create(name="labels", tool="label", verdict="allow", order=1)
    stick = calls(call("x", "label", text="fragile"))
    run = clerk.run(LOOK, stick, DONE)
    Run.objects.filter(pk=run.pk).update(script=[LOOK, stick, LOOK, stick, DONE])
    first = clerk.drive(fork(run, sam, 3))
    second = clerk.drive(fork(first, sam, 1))
    third = clerk.drive(fork(second, sam, 2))
    assert [r.pk for r in line_of(third)] == [second.pk, first.pk, run.pk]
    assert len(clerk_tools.effects_of("label")) == 1
    assert sent(third)[:5] == sent(run)[:5]
    assert third.state == second.state == first.state == Run.State.SUCCEEDED


def test_a_new_act_of_a_fork_goes_through_the_gate_like_any_other(clerk, paid, sam, dana):
    Run.objects.filter(pk=paid.pk).update(script=[LOOK, calls(call("p", "pay", account="bob", amount=9)), DONE])
    forked = clerk.drive(fork(paid, sam, 2))
    assert forked.state == Run.State.WAITING
    assert len(clerk_tools.effects_of("pay")) == 1
    clerk.decide(clerk.open(forked)[0], dana)
    clerk.drive(forked)
    assert clerk_tools.effects_of("pay")[1:] == [{"account": "bob", "amount": 9.0}]


def test_what_was_taken_back_since_is_told_so_and_can_be_done_again(clerk, paid, sam, dana):
    done = clerk.execution(paid, "p")
    back = clerk.run(calls(call("b", "look_up", what="back")), says("Back."))
    Run.objects.filter(pk=back.pk).update(undoes=done)
    (told,) = [m.text for m in sent(fork(paid, sam, 3)) if isinstance(m, ToolMessage) and m.name == "pay"]
    assert told.endswith("This has since been undone, as if it had never been done.")
    assert clerk.drive(fork(paid, sam, 2)).state == Run.State.WAITING, "people are asked about it anew"


def test_an_act_of_which_nobody_knows_is_told_so_and_not_tried_again(clerk, sam, dana):
    lost = calls(call("s", "send", to="ana", how="lost"))
    run = clerk.run(LOOK, lost, DONE)
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).waiting_for == "outcome"
    actions.cancel_run(run.pk, sam)
    assert clerk.execution(run, "s").state == ToolExecution.State.OUTCOME_UNKNOWN
    (told,) = [m.text for m in sent(fork(run, sam, 3)) if isinstance(m, ToolMessage) and m.name == "send"]
    assert "It is not known whether this happened" in told
    forked = clerk.drive(fork(run, sam, 2))
    assert acts(forked) == []
    assert len(clerk_tools.effects_of("send")) == 1


def test_what_a_person_rejected_before_is_not_proposed_again_behind_it(clerk, sam, dana):
    run = clerk.run(PAY, DONE)
    clerk.decide(clerk.open(run)[0], dana, "reject", message="No.")
    clerk.drive(run)
    Run.objects.filter(pk=run.pk).update(script=[PAY, PAY, DONE])
    forked = clerk.drive(fork(run, sam, 2))
    assert ToolExecution.objects.get(run=forked).reason == "previously_rejected"


# --- Who, and once ----------------------------------------------------------------------------


def test_one_key_starts_one_fork_and_another_change_is_another_request(clerk, paid, sam):
    first = actions.fork_run(paid.pk, Fork(step=2, instructions="A"), sam, "k")
    assert actions.fork_run(paid.pk, Fork(step=2, instructions="A"), sam, "k") == first
    for other in (Fork(step=2, instructions="B"), Fork(step=1, instructions="A"), Fork(step=2)):
        with pytest.raises(actions.Refused) as refused:
            actions.fork_run(paid.pk, other, sam, "k")
        assert refused.value.code == "idempotency_key_reused"
    assert Run.objects.count() == 2


def test_whoever_may_start_runs_and_sees_this_one_may_fork_it(clerk, paid, mia):
    with pytest.raises(actions.Refused) as refused:
        fork(paid, mia)
    assert refused.value.code == "forbidden"
    stranger = User.objects.create_user("stranger")
    stranger.groups.add(Group.objects.get(name="operator"))
    if not stranger.has_perm("agentapp.view_run"):
        with pytest.raises(actions.Refused) as refused:
            fork(paid, stranger)
        assert refused.value.code == "not_found"


def test_who_started_the_first_decides_nothing_that_comes_of_it(clerk, paid, sam):
    sam.groups.add(Group.objects.get(name="approver"))
    forked = clerk.drive(
        fork(paid, User.objects.create_superuser("olga"), 2, call=0, arguments={"account": "ana", "amount": 7})
    )
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(clerk.open(forked)[0], User.objects.get(pk=sam.pk))
    assert refused.value.code == "took_over"


def test_a_run_under_way_and_what_is_erased_are_not_forked(clerk, paid, sam):
    waiting = clerk.run(PAY)
    with pytest.raises(actions.Refused) as refused:
        fork(waiting, sam)
    assert refused.value.code == "not_ended"
    forked = clerk.drive(fork(paid, sam, 3))
    Run.objects.filter(pk=paid.pk).update(erased_at=paid.finished_at)
    for run in (paid, forked):
        with pytest.raises(actions.Refused) as refused:
            fork(run, sam)
        assert "erased" in refused.value.message


def test_a_fork_is_forked_and_not_tried_again(clerk, paid, sam):
    forked = clerk.drive(fork(paid, sam, 3))
    with pytest.raises(actions.Refused) as refused:
        actions.retry_run(forked.pk, sam)
    assert "Fork it" in refused.value.message


# --- A conversation ---------------------------------------------------------------------------


@pytest.fixture
def talk(clerk: Clerk) -> Run:
    clerk.run(says("Hello."), input="Hi, I am Ana.", conversation="t-1")
    run = clerk.run(LOOK, says("It is here."), input="Where is my kettle?", conversation="t-1")
    clerk.run(says("Bye."), input="Thanks.", conversation="t-1")
    return run


def test_a_fork_is_told_of_the_conversation_and_says_nothing_in_it(clerk, talk, sam):
    version, said = Conversation.objects.get().version, Message.objects.count()
    forked = clerk.drive(fork(talk, sam, 2, instructions="Be kind."))
    assert (forked.conversation, forked.asked_in) == (None, Conversation.objects.get())
    assert (Conversation.objects.get().version, Message.objects.count()) == (version, said)
    assert sent(forked) == sent(talk)
    assert [m.text for m in sent(forked)][:3] == ["Hi, I am Ana.", "Hello.", "Where is my kettle?"]
    assert "Thanks." not in str(sent(forked)), "what came later was not said yet"
    assert sent(clerk.drive(fork(forked, sam, 1))) == sent(talk)


def test_what_a_customer_wrote_stays_theirs_in_a_fork(clerk, sam):
    pay = calls(call("p", "pay", account="zoe.berg", amount=5))
    run = clerk.run(pay, DONE, input="Pay zoe.berg please.", conversation="t-2")
    actions.cancel_run(run.pk, sam)
    (asked,) = clerk.open(clerk.drive(fork(run, sam)))
    assert {origin["path"]: origin["origin"] for origin in asked.provenance}["account"] == "customer"


def test_who_may_not_read_a_conversation_forks_no_run_of_it(clerk, talk):
    Run.objects.filter(pk=talk.pk).update(starter=User.objects.create_superuser("olga"))
    other = User.objects.create_user("other")
    other.groups.add(Group.objects.get(name="operator"))
    Run.objects.filter(pk=talk.pk).update(starter=other)
    if not other.has_perm("agentapp.view_run"):
        with pytest.raises(actions.Refused) as refused:
            fork(talk, other)
        assert refused.value.code == "forbidden"


# --- Erasing ----------------------------------------------------------------------------------


def test_what_is_erased_is_erased_in_its_forks_too(clerk, paid, sam):
    changed = {"arguments": {"account": "ana", "amount": 7}, "instructions": "Ana is rude."}
    forked = clerk.drive(fork(paid, sam, 2, call=0, **changed))
    actions.cancel_run(forked.pk, sam)
    erasing.erase("run", str(paid.pk), "They asked.", User.objects.create_superuser("olga"), "olga")
    forked.refresh_from_db()
    assert forked.erased_at is not None
    assert (forked.opening, forked.input) == (None, "(erased)")
    assert forked.agent_snapshot["instructions"] == "(erased)"


def test_instructions_that_were_changed_go_from_the_forks_of_a_fork_and_those_of_the_agent_stay(clerk, paid, sam):
    forked = clerk.drive(fork(paid, sam, instructions="Mirabel Ostrander is rude."))
    again = clerk.drive(fork(forked, sam, input="Pay half."))
    other = clerk.drive(fork(paid, sam, input="Pay twice."))
    for run in (forked, again, other):
        assert run.is_final or actions.cancel_run(run.pk, sam)
    assert "Mirabel" in again.agent_snapshot["instructions"]
    said = other.agent_snapshot["instructions"]
    erasing.erase("run", str(paid.pk), "They asked.", User.objects.create_superuser("olga"), "olga")
    found = [Run.objects.get(pk=run.pk) for run in (forked, again, other)]
    assert all(run.erased_at is not None for run in found)
    assert [run.agent_snapshot["instructions"] for run in found] == ["(erased)", "(erased)", said]
