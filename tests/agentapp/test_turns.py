"""Several runs in one conversation: they take turns, or the new one replaces those before it."""

import threading
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from agentapp import (
    actions,
    compilers,
    conversations,
    conversing,
    customers,
    erasing,
    loop,
    nudges,
    runs,
    sweep,
    tasks,
    turns,
)
from agentapp.compilers import said_before
from agentapp.messages import AssistantMessage, ToolCall
from agentapp.models import Agent, Conversation, Run, ToolExecution
from agentapp.reasons import StopReason
from approvals import ledger
from approvals.models import Approval
from tests import clerk_tools
from tests.conftest import Clerk, call, calls, says
from tests.races import race
from tests.rows import events

PAY = calls(call("p", "pay", account="ana", amount=1))


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> list[uuid.UUID]:
    """The runs workers were told about."""
    told: list[uuid.UUID] = []
    for module in (tasks, nudges):
        monkeypatch.setattr(module, "nudge", lambda run_id, delay=0: told.append(run_id))
    return told


@pytest.fixture
def replacing(clerk: Clerk) -> Clerk:
    clerk.agent.on_new_message = Agent.OnNewMessage.CANCEL
    clerk.agent.save()
    return clerk


def started(clerk: Clerk, *replies: Any, input: str = "Well?", key: str = "ticket-1", **more: Any) -> Run:
    return clerk.start(*(replies or (says("So."),)), input=input, conversation=key, **more)


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


# --- One after the other ------------------------------------------------------------------------------


def test_a_run_waits_for_the_one_before_it_and_then_knows_its_answer(clerk, dana):
    first = clerk.drive(started(clerk, PAY, says("Paid."), input="Pay Ana."))
    second = started(clerk, says("You are welcome."), input="Thanks.")
    assert clerk.drive(second).state == "queued"
    assert turns.ahead([second]) == {second.pk: first}
    clerk.decide(clerk.open(first)[0], dana)
    assert clerk.drive(first).answer == "Paid."
    assert [message.content for message in said_before(second)] == ["Pay Ana.", "Paid."]
    assert [message.content for message in said_before(first)] == []
    assert clerk.drive(second).answer == "You are welcome."


def test_the_answer_of_a_run_that_has_not_ended_is_never_that_of_another(clerk):
    clerk.drive(started(clerk, says("First answer.")))
    second = clerk.drive(started(clerk, PAY))
    assert (second.state, second.answer) == ("waiting", "")
    assert clerk.drive(started(clerk, says("  "))).answer == ""


def test_runs_of_one_conversation_go_in_the_order_of_their_messages(clerk):
    waiting = [started(clerk, says(f"{n}."), input=f"{n}?") for n in range(4)]
    assert [message.seq for run in waiting for message in run.messages.all()] == [1, 2, 3, 4]
    for run in reversed(waiting[1:]):
        assert loop.drive(run.pk) is None
        assert fresh(run).state == "queued"
    assert sweep.sweep() == [waiting[0].pk]
    for run in waiting:
        assert clerk.drive(run).state == "succeeded"
    said = [message.content for message in said_before(started(clerk))]
    assert said == ["0?", "0.", "1?", "1.", "2?", "2.", "3?", "3."]


def test_runs_of_other_conversations_and_of_none_wait_for_nobody(clerk):
    clerk.drive(started(clerk, PAY))
    assert clerk.drive(started(clerk, key="ticket-2")).state == "succeeded"
    assert clerk.run(says("Done.")).state == "succeeded"


def test_a_run_that_another_asked_for_does_not_wait_for_it(clerk):
    parent = clerk.drive(started(clerk, PAY))
    child = started(clerk, says("Here."))
    Run.objects.filter(pk=child.pk).update(parent=parent, depth=1)
    assert clerk.drive(child).state == "succeeded"


@pytest.mark.parametrize("end", ["succeeds", "fails", "stops", "is cancelled"])
def test_however_a_run_ends_the_next_one_is_told(clerk, sam, nudged, end):
    replies = {"succeeds": [says("Done.")], "fails": [says("")], "stops": [calls()], "is cancelled": [PAY]}[end]
    if end == "stops":
        Agent.objects.update(max_steps=0)
    first, second = started(clerk, *replies), started(clerk)
    nudged.clear()
    tasks.drive_run(str(first.pk))
    if end == "is cancelled":
        assert nudged == []
        actions.cancel_run(first.pk, sam)
    assert fresh(first).is_final
    assert nudged == [second.pk]


def test_a_nudge_that_was_lost_is_made_up_for_by_the_sweep(clerk):
    first, second = started(clerk), started(clerk)
    loop.drive(first.pk)
    assert sweep.sweep() == [second.pk]
    assert clerk.drive(second).state == "succeeded"


def test_a_run_that_goes_back_to_the_queue_keeps_its_turn(clerk, settings):
    settings.TIME_SLICE_SECONDS = -1
    first, second = started(clerk, calls(call("a", "look_up", what="x")), says("Done.")), started(clerk)
    assert loop.drive(first.pk) == loop.Again()
    assert fresh(first).state == "queued"
    assert loop.drive(second.pk) is None
    assert fresh(second).state == "queued"
    settings.TIME_SLICE_SECONDS = 60
    assert clerk.drive(first).state == "succeeded"


def test_two_messages_at_once_are_put_in_an_order(clerk):
    started_at_once = race(lambda: started(clerk, input="a"), lambda: started(clerk, input="b"))
    first, second = sorted(started_at_once, key=lambda run: fresh(run).created_at)
    assert [run.messages.get().seq for run in (first, second)] == [1, 2]
    assert fresh(first).created_at < fresh(second).created_at
    assert sweep.sweep() == [first.pk]


# --- The new one replaces the others ------------------------------------------------------------------


def test_a_waiting_run_is_replaced_at_once_and_says_by_which(replacing, sam):
    first = replacing.drive(started(replacing, PAY))
    approval = replacing.open(first)[0]
    second = started(replacing, says("Fine."), input="Never mind.")
    first.refresh_from_db()
    assert (first.state, first.stop_reason) == ("cancelled", StopReason.SUPERSEDED)
    assert second.reference in first.stop_message
    approval.refresh_from_db()
    assert approval.state == "withdrawn"
    assert replacing.execution(first, "p").state == "cancelled"
    assert events(ledger.run_chain(first.pk))[-1] == "run.cancelled"
    assert replacing.drive(second).answer == "Fine."
    assert [message.content for message in said_before(second)] == ["Well?"]
    assert clerk_tools.effects_of("pay") == []


def test_a_queued_run_is_replaced_too(replacing):
    first, second = started(replacing), started(replacing)
    assert fresh(first).stop_reason == StopReason.SUPERSEDED
    assert replacing.drive(second).state == "succeeded"


def test_a_running_run_is_replaced_before_its_next_call(replacing):
    hangs, go_on = threading.Event(), threading.Event()
    clerk_tools.GATES["slow"] = go_on
    go_on.wait = lambda timeout, wait=go_on.wait: hangs.set() or wait(timeout)
    first = started(replacing, calls(call("h", "hang", name="slow")), says("never said"))
    worker = threading.Thread(target=_drive, args=[first])
    worker.start()
    assert hangs.wait(10)
    second = started(replacing, says("Fine."))
    assert replacing.drive(second).state == "queued"
    go_on.set()
    worker.join(10)
    first.refresh_from_db()
    assert (first.state, first.stop_reason, first.answer) == ("cancelled", StopReason.SUPERSEDED, "")
    assert second.reference in first.stop_message
    assert replacing.drive(second).answer == "Fine."


def _drive(run: Run) -> None:
    try:
        loop.drive(run.pk)
    finally:
        connection.close()


def in_the_middle_of_a_write(clerk: Clerk, run: Run) -> None:
    ToolExecution.objects.filter(run=run).update(
        state="executing", started_at=run.created_at, idempotency_key="k", allowed_by="rule:test"
    )


def with_an_unknown_outcome(clerk: Clerk, run: Run) -> None:
    in_the_middle_of_a_write(clerk, run)
    ToolExecution.objects.filter(run=run).update(state="outcome_unknown")


def with_a_child_under_way(clerk: Clerk, run: Run) -> None:
    Run.objects.filter(pk=clerk.start(says("x")).pk).update(parent=run, depth=1)


@pytest.mark.parametrize("busy", [in_the_middle_of_a_write, with_an_unknown_outcome, with_a_child_under_way])
def test_a_run_in_the_middle_of_an_act_is_waited_for(replacing, busy):
    first = replacing.drive(started(replacing, PAY))
    busy(replacing, first)
    second = started(replacing)
    assert fresh(first).state == "waiting"
    assert turns.ahead([second]) == {second.pk: first}
    assert replacing.drive(second).state == "queued"


@pytest.mark.parametrize("type", ["approve", "reject", "respond"])
def test_a_decision_that_is_about_to_take_effect_is_not_taken_away(replacing, dana, settings, type):
    settings.UNDO_HOLD_SECONDS = 60
    first = replacing.drive(started(replacing, PAY, says("Done.")))
    replacing.decide(replacing.open(first)[0], dana, type, message="Because.")
    second = started(replacing)
    assert fresh(first).state == "waiting"
    assert Approval.objects.get().state in Approval.DECIDED
    assert replacing.drive(second).state == "queued"


def test_behind_a_run_that_is_waited_for_only_the_latest_message_is_answered(replacing):
    first = replacing.drive(started(replacing, PAY))
    in_the_middle_of_a_write(replacing, first)
    second, third = started(replacing), started(replacing)
    assert fresh(first).state == "waiting"
    assert fresh(second).stop_reason == StopReason.SUPERSEDED
    assert turns.ahead([third]) == {third.pk: first}


def test_a_message_that_is_refused_replaces_nothing(replacing, sam):
    first = replacing.drive(started(replacing, PAY))
    stale = actions.NewRun(agent="clerk", input="Hm?", conversation="ticket-1", conversation_version=7)
    with pytest.raises(actions.Refused):
        actions.start_run(stale, sam)
    assert fresh(first).state == "waiting"


def test_a_run_being_driven_and_a_new_message_do_not_lock_each_other_out(replacing):
    for _ in range(5):
        first = started(replacing, says("Answer."), key="race")
        results = race(lambda run=first: loop.drive(run.pk), lambda: started(replacing, key="race"))
        assert not [result for result in results if isinstance(result, Exception)]
        assert replacing.drive(first).is_final
        assert replacing.drive(results[1]).is_final


@pytest.mark.postgresql
def test_a_message_on_the_page_of_an_earlier_run_and_the_end_of_the_one_under_way_do_not_either(replacing, monkeypatch):
    earlier = started(replacing, says("Answer."))
    replacing.drive(earlier)
    under_way = started(replacing)
    looks, holds, find = threading.Event(), threading.Event(), turns._replaceable

    def replaceable(conversation: Any) -> list[Run]:
        looks.set()
        assert holds.wait(20)
        return find(conversation)

    def end() -> None:
        with ledger.transaction():
            run = runs.lock(under_way.pk)
            holds.set()
            assert looks.wait(20)
            conversations.add(run.conversation, run, "assistant", "Answer.")

    monkeypatch.setattr(turns, "_replaceable", replaceable)
    new = actions.NewRun("clerk", "And?", follows=earlier.pk)
    ended, answering = race(end, lambda: actions.start_run(new, replacing.starter))
    assert ended is None
    assert answering.conversation_id == earlier.conversation_id


# --- A run ends once ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", Run.FINAL)
def test_a_run_that_has_ended_cannot_be_driven_again(clerk, sam, state):
    run = clerk.run(says("Done."))
    Run.objects.filter(pk=run.pk).update(state=state)
    before = Run.objects.filter(pk=run.pk).values().get()
    assert runs.claim(run.pk) is None
    assert loop.drive(run.pk) is None
    assert run.pk not in sweep.sweep()
    assert Run.objects.filter(pk=run.pk).values().get() == before


def test_the_same_again_is_a_new_run_that_starts_from_nothing(clerk):
    replies = calls(call("a", "look_up", what="x")), says("Done.")
    first = clerk.drive(started(clerk, *replies, input="Do it."))
    again = clerk.drive(started(clerk, *replies, input="Do it."))
    assert first.pk != again.pk
    assert [(run.step_count, run.input_tokens, run.answer) for run in (first, again)] == [(2, 20, "Done.")] * 2
    assert again.conversation == first.conversation
    assert clerk_tools.effects_of("look_up") == [{"what": "x"}] * 2


def test_a_run_driven_step_by_step_ends_like_one_driven_at_once(clerk, settings):
    replies = calls(call("a", "look_up", what="x")), calls(call("b", "fail", how="never")), says("Done.")

    def outcome(run: Run) -> Any:
        steps = run.steps.order_by("number").values_list("number", "text", "input_tokens")
        answers = run.executions.order_by("step__number").values_list("call_id", "result_status", "result_text")
        return run.state, run.answer, run.step_count, run.had_tool_errors, list(steps), list(answers)

    at_once = clerk.run(*replies)
    # Enough time to begin a step, used up when the step has ended.
    settings.TIME_SLICE_SECONDS = 0.001
    assert outcome(clerk.run(*replies)) == outcome(at_once)


@pytest.mark.parametrize("compiler", Agent.Compiler.values)
def test_steps_are_counted_by_their_rows_whatever_the_model_is_sent(clerk, compiler):
    Agent.objects.update(max_steps=3, on_limit="stop", message_compiler=compiler, compiler_settings={"observations": 0})
    clerk.agent.refresh_from_db()
    run = clerk.run(*[calls(call("a", "look_up", what=str(n))) for n in range(9)])
    assert (run.stop_reason, run.step_count) == (StopReason.STEPS_LIMIT, 3)


def test_a_changed_call_changes_no_later_call_of_the_same_id(clerk, dana):
    first = calls(call("same", "send", to="alice", how="well"))
    later = calls(call("same", "send", to="carol"))
    run = clerk.run(first, later, says("Sent."))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"to": "bob"}')
    clerk.drive(run)
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).answer == "Sent."
    assert clerk_tools.effects_of("send") == [{"to": "bob"}, {"to": "carol"}]


def test_a_history_in_disorder_ends_the_run_before_a_model_is_asked_and_names_the_call(clerk, monkeypatch):
    def forgetful(run: Run, *rest: Any) -> Any:
        yield AssistantMessage("", (ToolCall("lost-7", "look_up", "{}"),))

    monkeypatch.setitem(compilers.COMPILERS, "current_run", forgetful)
    run = clerk.run(says("never asked for"))
    assert (run.state, run.stop_reason, run.step_count) == ("failed", "error", 0)
    assert "no answer to the call 'lost-7'" in run.stop_message


@pytest.mark.parametrize(
    "how", ["by its name", "behind a run", "by a link", "as a person", "as a summary", "in a fork"]
)
def test_nothing_more_is_said_in_a_conversation_that_was_erased(clerk: Clerk, sam: User, ada: User, how: str) -> None:
    """It would be stored under no customer's name."""
    run = clerk.run(says("Good day."), input="I am Mirabel.", conversation="ticket-7", customer="40117")
    if how == "as a person":
        actions.take_over_run(run.pk, ada)
    erasing.erase("customer", "40117", "Request 12", ada, "ada")
    talk = Conversation.objects.select_related("agent").get()
    text = "My address is Elm Street 5."
    ways = {
        "by its name": lambda: actions.start_run(actions.NewRun("clerk", text, conversation=talk.key), sam),
        "behind a run": lambda: actions.start_run(actions.NewRun("clerk", text, follows=run.pk), sam),
        "by a link": lambda: customers.write(customers.Access(talk, sam, "link"), text),
        "as a person": lambda: actions.write_message(run.pk, text, ada),
        "as a summary": lambda: conversing.summarise_conversation(talk.pk, text, 1, sam),
        "in a fork": lambda: conversing.fork_conversation(talk.pk, None, "again", sam),
    }
    with pytest.raises(actions.Refused) as refused:
        ways[how]()
    assert (refused.value.code, refused.value.status) == ("erased", 409)
    assert (list(Run.objects.all()), list(Conversation.objects.all())) == ([run], [talk])
    talk.refresh_from_db()
    assert (talk.summary, set(talk.messages.values_list("content", flat=True))) == ("", {"(erased)"})
