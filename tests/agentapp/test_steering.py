"""Results of calls that steer the conversation: who speaks next, and how long the model is told a result."""

import dataclasses

import pytest

from agentapp import actions, conversations, runs
from agentapp.actions import NewRun
from agentapp.compilers import CUSTOMER_MEANWHILE, NOT_KEPT, compile_messages, load_earlier
from agentapp.messages import ToolMessage, ToolResult, UserMessage
from agentapp.models import Agent, Conversation, Message, Run
from agentapp.sweep import sweep
from agentapp.tools.base import tool
from agentapp.transcript import load_steps
from approvals import ledger
from approvals.models import Event
from tests import clerk_hooks
from tests.conftest import call, calls, says
from tests.rows import events
from tests.teams import Team

Mode, Wants = Conversation.Mode, Conversation.Wants
MEANWHILE: list = []
"""What happens while the next call of `steer` runs."""


@tool(effect="read", trust="trusted_system")
def steer(mode: str = "", lifespan: str = "") -> ToolResult:
    """Ask something of the conversation."""
    if MEANWHILE:
        MEANWHILE.pop()()
    asked = {"mode": mode} if mode else {}
    return ToolResult(data="the secret of the day", control=asked | ({"lifespan": lifespan} if lifespan else {}))


@tool(effect="reversible", trust="trusted_system")
def act(mode: str = "") -> ToolResult:
    """Do something, and ask for a person."""
    return ToolResult(data="done", control={"session_mode": mode} if mode else {})


@pytest.fixture(autouse=True)
def steering(clerk, offer):
    offer(steer, act)


def talk(clerk, *replies, **more) -> Run:
    return clerk.run(*replies, conversation="ticket-7", customer="Ana", **more)


def conversation() -> Conversation:
    return Conversation.objects.get(key="ticket-7")


def steering_calls(*modes: str) -> dict:
    return calls(*[call(f"c{n}", "steer", mode=mode, lifespan="") for n, mode in enumerate(modes)])


def said_to_model(run: Run) -> list:
    run = Run.objects.select_related("agent", "conversation").get(pk=run.pk)
    return list(compile_messages(run, load_earlier(run), load_steps(run)))


def say(clerk, text: str, **more) -> actions.Started:
    new = NewRun("clerk", text, conversation="ticket-7", script=[says("Answered.")], **more)
    return actions.start_run_once(new, clerk.starter)


# --- The mode ----------------------------------------------------------------------------------


def test_the_reply_of_the_turn_is_still_given_and_then_a_person_is_wanted(clerk):
    run = talk(clerk, steering_calls("manual"), says("A colleague will see to it."))
    found = conversation()
    assert (run.state, run.answer) == ("succeeded", "A colleague will see to it.")
    assert (found.mode, found.person_wanted, found.person_wanted_at is not None) == (Mode.MANUAL, Wants.AGENT, True)
    assert [m.content for m in found.messages.order_by("seq")] == ["Do it.", "A colleague will see to it."]
    [changed] = Event.objects.filter(chain=f"conversation:{found.pk}", type="conversation.mode_changed")
    execution = run.executions.get()
    assert changed.data == {"mode": "manual", "by": "agent", "run": str(run.pk), "execution": str(execution.pk),
                            "tool": "steer"}  # fmt: skip


def test_what_the_customer_says_then_starts_nothing_until_a_person_came_and_went(clerk, sam):
    run = talk(clerk, steering_calls("manual"), says("A colleague will see to it."))
    kept = say(clerk, "Hello?")
    assert (kept.kept, kept.run.pk, Run.objects.count()) == (True, run.pk, 1)
    assert sweep() == []
    taken = actions.take_over_run(run.pk, sam)
    assert (taken.taken_over_by, conversation().mode, conversation().person_wanted) == (sam, Mode.MANUAL, "")
    actions.write_message(run.pk, "I am here.", sam)
    actions.hand_back_run(run.pk, sam)
    assert (conversation().mode, conversation().person_wanted_at) == (Mode.AUTO, None)
    after = say(clerk, "Thank you")
    assert (after.kept, clerk.drive(after.run).answer) == (False, "Answered.")


def test_a_message_sent_twice_with_one_key_is_kept_once(clerk):
    talk(clerk, steering_calls("manual"), says("Soon."))
    say(clerk, "Hello?", request_key="k")
    again = say(clerk, "Hello?", request_key="k")
    assert (again.repeated, again.kept) == (True, True)
    assert Message.objects.filter(content="Hello?").count() == 1


def test_of_several_results_the_last_one_that_says_anything_counts(clerk):
    talk(clerk, steering_calls("manual", "auto", ""), says("Never mind."))
    assert (conversation().mode, conversation().person_wanted) == (Mode.AUTO, "")
    talk(clerk, steering_calls("auto", "manual", ""), steering_calls(""), says("A colleague comes."))
    assert conversation().mode == Mode.MANUAL


def test_a_later_result_of_the_same_run_may_give_the_word_back_to_the_agent(clerk):
    talk(clerk, steering_calls("manual"), steering_calls("auto"), says("It is settled."))
    assert conversation().mode == Mode.AUTO
    assert events(f"conversation:{conversation().pk}").count("conversation.mode_changed") == 2


def test_a_write_asks_for_a_person_too(clerk, dana):
    run = talk(clerk, calls(call("a", "act", mode="manual")), says("Done."))
    clerk.decide(*clerk.open(run), dana)
    assert clerk.drive(run).answer == "Done."
    assert conversation().person_wanted == Wants.AGENT


@pytest.mark.parametrize("point", ["before_tool_use", "after_tool_use"])
def test_what_a_hook_answers_or_makes_of_a_result_counts_as_a_result(clerk, point):
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"], hook_contract="strict")
    wants = ToolResult(data="Ask a person.", control={"session_mode": "manual"})
    clerk_hooks.DO[point] = lambda context: dataclasses.replace(context, result=wants)
    assert talk(clerk, steering_calls("auto"), says("A colleague comes.")).answer == "A colleague comes."
    assert conversation().person_wanted == Wants.AGENT
    clerk_hooks.forget()


def test_no_result_takes_the_word_from_a_person_who_has_taken_over(clerk, sam):
    run = clerk.start(steering_calls("auto"), says("Done."), conversation="ticket-7")
    MEANWHILE.append(lambda: actions.take_over_run(run.pk, sam))
    clerk.drive(run)
    assert (run.executions.get().result_status, conversation().mode) == ("ok", Mode.MANUAL)


def test_a_run_that_waited_its_turn_waits_for_the_person(clerk, sam):
    first = clerk.start(steering_calls("manual"), says("A colleague comes."), conversation="ticket-7")
    second = clerk.start(says("Second."), conversation="ticket-7")
    clerk.drive(first)
    assert (sweep(), clerk.drive(second).state) == ([], "queued")
    actions.take_over_run(second.pk, sam)
    actions.hand_back_run(second.pk, sam)
    assert clerk.drive(second).answer == "Second."


def test_a_run_that_has_begun_goes_on_to_its_answer_in_another_workers_hands(clerk):
    run = clerk.start(says("A colleague comes."), conversation="ticket-7")
    claimed = runs.claim(run.pk)
    assert claimed is not None
    assert claimed.lease_token is not None
    with ledger.transaction():
        conversations.want_person(conversations.lock(conversation()), Wants.AGENT, {})
    runs.release(claimed, claimed.lease_token, "its time slice is over")
    assert clerk.drive(run).answer == "A colleague comes."


def test_what_the_customer_adds_while_the_answer_is_made_is_no_word_of_a_persons(clerk, dana):
    run = talk(clerk, steering_calls("manual"), calls(call("a", "act")), says("Done."))
    assert say(clerk, "And hurry.").run.pk == run.pk
    clerk.decide(*clerk.open(run), dana)
    assert clerk.drive(run).answer == "Done."
    notes = [message for message in said_to_model(run) if isinstance(message, UserMessage)][1:]
    assert [note.text for note in notes] == [f'{CUSTOMER_MEANWHILE}\n- The customer: "And hurry."']


def test_a_run_without_a_conversation_ends_as_ever(clerk):
    assert clerk.run(steering_calls("manual"), says("Done.")).answer == "Done."
    assert not Conversation.objects.exists()


def test_what_an_asked_agents_tool_wants_reaches_the_conversation(clerk):
    team = Team(clerk)
    team.may_ask("helper", steering_calls("manual"), says("A person must look."))
    run = team.run(calls(call("a", "ask_helper", input="Help")), says("A colleague comes."), conversation="ticket-7")
    assert (run.answer, conversation().person_wanted) == ("A colleague comes.", Wants.AGENT)


# --- The lifespan ------------------------------------------------------------------------------


def results(run: Run) -> list[str]:
    return [message.text for message in said_to_model(run) if isinstance(message, ToolMessage)]


@pytest.mark.parametrize(("lifespan", "later"), [("response", NOT_KEPT), ("session", "the secret of the day")])
@pytest.mark.parametrize("how", [{"message_compiler": "full_conversation"}, {"driver": "guided"}])
def test_a_result_for_one_answer_is_told_in_its_run_and_not_in_later_ones(clerk, lifespan, later, how):
    Agent.objects.update(message_compiler="full_conversation")
    first = talk(clerk, calls(call("a", "steer", lifespan=lifespan)), says("Told."))
    assert results(first) == ["the secret of the day"]
    second = talk(clerk, says("Again."))
    second.agent_snapshot |= how
    second.save()
    assert results(second) == [later]


@pytest.mark.parametrize("compiler", ["current_run", "sections", "last_observations"])
def test_elsewhere_later_runs_are_sent_what_was_said_and_no_results(clerk, compiler):
    talk(clerk, calls(call("a", "steer", lifespan="session")), says("Told."))
    second = talk(clerk, says("Again."))
    second.agent_snapshot["message_compiler"] = compiler
    second.save()
    assert results(second) == []


def test_a_run_that_is_tried_again_composes_the_same_answer_and_is_told_the_result(clerk):
    first = talk(clerk, calls(call("a", "steer", lifespan="response")), calls(call("b", "no_such")), says("Told."))
    again = actions.retry_run(first.pk, clerk.starter, first=2)
    assert results(again) == ["the secret of the day"]
