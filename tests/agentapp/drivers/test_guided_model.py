"""Guidance by a model behind a loopback provider: its questions, and what code makes of the answers."""

import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from agentapp import actions, asking, runtime
from agentapp.hooks import AfterInferenceResponse, BeforeInferenceRequest, hook
from agentapp.models import Agent, Breaker, KillSwitch, Run, Tool
from tests.agentapp.drivers.mind import DIALECT, TOOLS, Mind, argument, kind_of, matched, run, short
from tests.clerk_tools import effects_of
from tests.conftest import Clerk
from tests.guided import Guide
from tests.wire import Answer, ProviderServer, Question


@pytest.fixture
def guide(clerk: Clerk) -> Guide:
    guide = Guide(clerk)
    Agent.objects.update(model=DIALECT.model)
    return guide


def test_a_cascade_of_structured_questions_ends_in_one_reply(guide: Guide, provider: ProviderServer) -> None:
    guide.guideline("finding", "Say what it is.", "look_up")
    guide.guideline("other", "Never said.")
    mind = Mind(
        match=[matched(finding=True, other=False), matched(other=False)],
        look_up=short("look_up", {"what": "kettle", "sudo": 1, "why": "<<__missing__>>"}),
        compose="It is a kettle.",
    )
    provider.answer_with = mind
    found = run(guide)
    assert (found.state, found.answer) == ("succeeded", "It is a kettle.")
    assert mind.asked == ["match", "look_up", "match", "compose"]
    assert effects_of("look_up") == [{"what": "kettle"}]
    match, infer, _, compose = [DIALECT.read(question) for question in provider.questions]
    assert "finding: finding is asked for" in match.instructions
    assert '"why"' in infer.instructions
    assert "Asked for by finding: When finding is asked for: Say what it is." in infer.instructions
    assert "1. When finding is asked for: Say what it is." in compose.instructions
    assert "Never said" not in compose.instructions
    assert not any(question.body.get("tools") for question in provider.questions)
    assert "Observation:" in provider.questions[-1].body["messages"][-1]["content"]
    first = guide.step(found, 1)
    assert [(each["purpose"], each["requests"]) for each in first.asked] == [
        ("match_guidelines", 1),
        ("infer_tools", 1),
    ]
    assert first.input_tokens == sum(each["input_tokens"] for each in first.asked) > 0
    assert guide.evaluations(found)["look_up"].usage["purpose"] == "infer_tools"


@pytest.mark.parametrize("by", ["switch", "cancel"])
def test_what_stops_a_run_between_two_questions_of_a_step_stops_the_second(
    guide: Guide, provider: ProviderServer, mia: User, by: str
) -> None:
    guide.guideline("finding", "Say what it is.", "look_up")
    mind = Mind(match=[matched(finding=True)], look_up=short("look_up", {"what": "kettle"}), compose="It is a kettle.")

    def answer(question: Question) -> Answer:
        if by == "switch":
            actions.engage_switch("all", "", "Something is wrong.", mia)
        else:
            actions.cancel_run(Run.objects.get().pk, guide.clerk.starter)
        connection.close()
        return mind(question)

    provider.answer_with = answer
    found = run(guide)
    assert mind.asked == ["match"]
    assert (found.state, found.waiting_for) == (("waiting", "switch") if by == "switch" else ("cancelled", ""))
    assert (found.step_count, effects_of("look_up")) == (0, [])
    assert found.input_tokens > 0  # the answer received is counted
    if by == "switch":
        provider.answer_with = Mind(match=[matched(finding=False)], compose="Hello.")
        actions.release_switch(KillSwitch.objects.get().pk, mia, "")
        assert guide.clerk.drive(found).answer == "Hello."


def test_of_many_questions_at_once_those_that_wait_for_their_turn_are_stopped(
    guide: Guide, provider: ProviderServer, mia: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "AT_ONCE", 1)
    guide.guideline("finding", "Say what it is.", *TOOLS)
    evaluated = {tool: short(tool, run=False) for tool in TOOLS}
    mind = Mind(match=[matched(finding=True)], **evaluated)

    def answer(question: Question) -> Answer:
        if kind_of(question) in TOOLS:
            actions.engage_switch("all", "", "Something is wrong.", mia)
            connection.close()
        return mind(question)

    provider.answer_with = answer
    found = run(guide)
    assert (len(mind.asked), mind.asked[0], found.waiting_for) == (2, "match", "switch")
    assert found.input_tokens == 2 * 100  # all answers received are counted


def test_an_answer_that_cannot_be_read_is_asked_for_again_at_other_temperatures(
    guide: Guide, provider: ProviderServer
) -> None:
    guide.guideline("finding", "Say it.")
    mind = Mind(match=["Well…", {"guidelines": {}}, matched(finding=False)], compose="Hello.")
    provider.answer_with = mind
    assert run(guide).answer == "Hello."
    assert mind.temperatures == [0.15, 0.3, 0.1, None]
    assert guide.step(Run.objects.get(), 1).asked[0]["requests"] == 3


def test_after_three_answers_that_cannot_be_read_the_run_fails_and_says_so(
    guide: Guide, provider: ProviderServer
) -> None:
    guide.guideline("finding", "", "look_up", matcher="always")
    mind = Mind(look_up=["no", "no", "no", short("look_up", {"what": "late"})])
    provider.answer_with = mind
    found = run(guide)
    assert (found.state, len(mind.asked)) == ("failed", 3)
    assert "no readable answer to a question for infer_tools in 3 attempts" in found.stop_message


@pytest.mark.parametrize(("status", "state", "counted"), [(400, "failed", False), (500, "queued", True)])
def test_an_error_of_the_provider_is_one_of_the_model_as_for_any_driver(
    guide: Guide, provider: ProviderServer, status: int, state: str, counted: bool
) -> None:
    guide.guideline("finding", "", "look_up")
    provider.answer_with = Mind(match=Answer(DIALECT.error("No.", "invalid_request_error"), status=status))
    assert run(guide).state == state
    assert Breaker.objects.filter(scope=Breaker.Scope.MODEL).exists() is counted


def test_batches_are_asked_about_at_the_same_time(guide: Guide, provider: ProviderServer) -> None:
    guide.guideline("both", "", "look_up", "pay", matcher="always")
    together = threading.Barrier(2)
    mind = Mind(
        look_up=short("look_up", {"what": "a"}), pay=short("pay", run=False), compose="Done.", claims={"claims": []}
    )

    def answer(question: Question) -> Answer:
        if kind_of(question) in TOOLS:
            together.wait(30)  # neither is answered before both are asked
        return mind(question)

    provider.answer_with = answer
    assert run(guide).state == "succeeded"
    assert sorted(mind.asked[:2]) == ["look_up", "pay"]


def test_what_a_question_took_stands_with_its_batch_also_at_a_second_look(
    guide: Guide, provider: ProviderServer
) -> None:
    guide.set(planner="tests.guidance_code.Backwards")
    guide.guideline("paying", "", "pay")
    guide.guideline("finding", "", "look_up")
    provider.answer_with = Mind(
        match=[matched(finding=False, paying=True), matched(finding=True)],
        pay=short("pay", run=False),
        look_up=short("look_up", run=False),
        compose="Good day.",
        claims={"claims": []},
    )
    evaluations = guide.evaluations(run(guide))
    assert {name: each.batch for name, each in evaluations.items()} == {"pay": 1, "look_up": 2}
    assert {name: each.usage["batch"] for name, each in evaluations.items()} == {"pay": 1, "look_up": 2}


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (short("look_up", {"what": "x"}, run=False), "not_applicable"),
        (short("look_up", {"what": "x"}, already_known=True), "data_already_in_context"),
        (short("look_up", {"what": "<<__missing__>>"}), "cannot_run"),
    ],
)
def test_a_word_against_running_is_heeded(guide: Guide, provider: ProviderServer, said: Any, state: str) -> None:
    guide.guideline("finding", "", "look_up", matcher="always")
    provider.answer_with = Mind(look_up=said, compose="What do you mean?")
    found = run(guide)
    assert guide.evaluations(found)["look_up"].state == state
    assert effects_of("look_up") == []


WHOLE = {"account": argument("ana"), "amount": argument(5.0)}


@pytest.mark.parametrize(
    ("call", "more", "state"),
    [
        (WHOLE, {}, "needs_to_run"),
        ({"account": argument("ana"), "amount": argument(5.0, "guess")}, {}, "cannot_run"),
        ({"account": argument("ana"), "amount": argument(-5, state="invalid")}, {}, "cannot_run"),
        ({"account": argument("ana")}, {}, "cannot_run"),
        ({"account": argument("ana", "context"), "amount": argument(5.0)}, {}, "cannot_run"),
        (
            {"account": argument("ana"), "amount": argument(5.0)},
            {"same_call_was_made": True},
            "data_already_in_context",
        ),
        ({"account": argument("ana"), "amount": argument(5.0)}, {"better_tool": "look_up"}, "not_applicable"),
    ],
)
def test_a_call_that_changes_the_world_is_looked_at_argument_by_argument(
    guide: Guide, provider: ProviderServer, call: Any, more: Any, state: str
) -> None:
    Tool.objects.filter(name="pay").update(parameters={"account": {"source": "customer"}})
    guide.guideline("paying", "", "pay", matcher="always")
    provider.answer_with = Mind(pay=short("pay", call, **more), compose="Tell me more.", claims={"claims": []})
    found = run(guide)
    evaluation = guide.evaluations(found)["pay"]
    assert (evaluation.state, evaluation.mode) == (state, "full")
    assert found.state == ("waiting" if state == "needs_to_run" else "succeeded")
    assert "argument" in DIALECT.read(provider.questions[0]).instructions


def test_an_ordinary_guideline_stands_in_the_question_about_a_tool(guide: Guide, provider: ProviderServer) -> None:
    guide.guideline("paying", "", "pay", matcher="always")
    guide.guideline("consent", "Get their explicit consent first.", matcher="always", condition="money moves")
    provider.answer_with = Mind(pay=short("pay", run=False), compose="May I?", claims={"claims": []})
    assert run(guide).answer == "May I?"
    assert (
        "consent: When money moves: Get their explicit consent first."
        in DIALECT.read(provider.questions[0]).instructions
    )


def test_a_reply_that_claims_what_was_not_done_is_written_again(guide: Guide, provider: ProviderServer) -> None:
    guide.guideline("paying", "", "pay", matcher="always")
    mind = Mind(
        pay=short("pay", run=False),
        compose=["I have paid it.", "I have not paid it."],
        claims=[{"claims": ["pay"]}, {"claims": []}],
    )
    provider.answer_with = mind
    assert run(guide).answer == "I have not paid it."
    assert mind.asked == ["pay", "compose", "claims", "compose", "claims"]
    again = DIALECT.read(provider.questions[3]).instructions
    assert "The reply says that this was done, and it was not: pay." in again


SEEN: list[Any] = []


@hook("before_inference_request")
def note_request(context: BeforeInferenceRequest) -> None:
    SEEN.append("asked")


@hook("after_inference_response")
def note_reply(context: AfterInferenceResponse) -> None:
    SEEN.append("answered")


def test_hooks_see_the_questions_of_a_step_one_after_the_other(guide: Guide, provider: ProviderServer) -> None:
    SEEN.clear()
    Agent.objects.update(hooks=[f"{__name__}.note_request", f"{__name__}.note_reply"])
    guide.guideline("both", "", "look_up", "pay", matcher="always")
    no = {"look_up": short("look_up", run=False), "pay": short("pay", run=False)}
    provider.answer_with = Mind(**no, compose="Done.", claims={"claims": []})
    assert run(guide).state == "succeeded"
    assert SEEN == ["asked", "asked", "answered", "answered", "asked", "answered", "asked", "answered"]


def test_a_person_who_asks_about_a_call_is_answered_in_words(guide: Guide, provider: ProviderServer, dana: Any) -> None:
    guide.guideline("paying", "", "pay", matcher="always")
    provider.answer_with = Mind(pay=short("pay", WHOLE), compose="Because they asked.")
    found = run(guide)
    (approval,) = guide.clerk.open(found)
    asking.ask_agent(approval.pk, "Why?", dana)
    guide.clerk.drive(found)
    approval.refresh_from_db()
    assert approval.questions.get().answer == "Because they asked."
