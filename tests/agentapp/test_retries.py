"""A run that has ended is tried again, from its beginning or from one of its steps. What it did is never done again."""

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentapp import actions
from agentapp.compilers import compile_messages, load_earlier
from agentapp.messages import AssistantMessage, ToolMessage, UserMessage
from agentapp.models import Agent, Run
from agentapp.transcript import load_steps
from approvals.models import Event
from tests import clerk_tools
from tests.conftest import Clerk, call, calls, says

LOOK = calls(call("l", "look_up", what="kettle"), text="I look.")
PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")
DONE = says("Paid.")


def sent(run: Run) -> list[object]:
    return list(compile_messages(run, load_earlier(run), load_steps(run)))


@pytest.fixture
def failed(clerk: Clerk, dana: User) -> Run:
    """Looked up, paid, and then the provider was gone."""
    run = clerk.run(LOOK, PAY, {"error": "The provider is gone."})
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == Run.State.FAILED
    return run


def repaired(run: Run) -> Run:
    """As if the provider were back: the script says something at the step that failed."""
    Run.objects.filter(pk=run.pk).update(script=[LOOK, PAY, DONE])
    return run


def test_it_goes_on_at_the_step_and_nothing_before_it_runs_again(clerk, failed, sam):
    noted = list(clerk_tools.EFFECTS)
    assert [name for name, *_ in noted] == ["look_up", "pay"]
    retry = actions.retry_run(repaired(failed).pk, sam, first=3)
    clerk.drive(retry)
    assert (retry.state, retry.answer, retry.step_count) == (Run.State.SUCCEEDED, "Paid.", 1)
    assert noted == clerk_tools.EFFECTS
    assert (retry.retry_of, retry.steps_kept, retry.title) == (failed, 2, failed.title)


def test_the_model_is_told_what_was_done_as_if_it_were_its_own(clerk, failed, sam):
    retry = actions.retry_run(failed.pk, sam, first=3)
    kinds = [type(message) for message in sent(retry)]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage, AssistantMessage, ToolMessage]
    assert sent(retry) == sent(failed)


def test_what_is_kept_is_read_once_however_many_steps_follow(clerk, failed, sam):
    Run.objects.filter(pk=failed.pk).update(script=[LOOK, PAY, LOOK, LOOK, DONE])
    retry = actions.retry_run(failed.pk, sam, first=3)
    with CaptureQueriesContext(connection) as asked:
        clerk.drive(retry)
    assert retry.step_count == 3
    of_the_first = [one for one in asked if failed.pk.hex in one["sql"].replace("-", "")]
    assert len(of_the_first) == 3, "the run, its steps, their calls"


def test_from_the_first_step_it_begins_anew(clerk, failed, sam):
    retry = actions.retry_run(failed.pk, sam)
    assert sent(retry) == [UserMessage("Do it.")]
    clerk.drive(retry)
    assert [name for name, *_ in clerk_tools.EFFECTS] == ["look_up", "pay", "look_up"]
    assert retry.state == Run.State.WAITING


def test_a_call_of_the_step_it_begins_with_is_asked_about_anew(clerk, failed, sam):
    retry = clerk.drive(actions.retry_run(failed.pk, sam, first=2))
    (asked,) = clerk.open(retry)
    assert asked.tool == "pay"
    assert len(clerk_tools.effects_of("pay")) == 1
    found = [item for item in asked.evidence if "kettle" in str(item)]
    assert found, "what was looked up before is evidence for the request"


def test_a_retry_is_tried_again_with_all_that_stands_before_it(clerk, failed, sam):
    Run.objects.filter(pk=failed.pk).update(script=[LOOK, PAY, LOOK, {"error": "Gone again."}])
    second = clerk.drive(actions.retry_run(failed.pk, sam, first=3))
    assert second.state == Run.State.FAILED
    third = actions.retry_run(second.pk, sam, first=2)
    told = [m.text for m in sent(third) if isinstance(m, AssistantMessage)]
    assert told == ["I look.", "I pay.", "I look."]
    ids = [c.id for m in sent(third) if isinstance(m, AssistantMessage) for c in m.tool_calls]
    assert len(set(ids)) == len(ids) == 3


def test_a_call_that_had_no_answer_is_told_of_as_not_executed(clerk, sam):
    run = clerk.run(PAY, DONE)
    actions.cancel_run(run.pk, sam)
    retry = actions.retry_run(run.pk, sam, first=2)
    assert [m.ok for m in sent(retry) if isinstance(m, ToolMessage)] == [False]
    assert clerk_tools.effects_of("pay") == []


def test_who_started_the_first_decides_nothing_that_comes_of_it(clerk, failed, dana):
    sam = failed.starter
    sam.groups.add(Group.objects.get(name="approver"))
    operator = User.objects.create_superuser("olga")
    retry = clerk.drive(actions.retry_run(failed.pk, operator, first=2))
    (asked,) = clerk.open(retry)
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(asked, User.objects.get(pk=sam.pk))
    assert refused.value.code == "took_over"
    clerk.decide(asked, dana)


def test_the_record_says_of_what_it_is_a_retry(clerk, failed, sam):
    retry = actions.retry_run(failed.pk, sam, first=3)
    began = Event.objects.get(type="run.queued", chain__endswith=str(retry.pk))
    assert (began.data["retry_of"], began.data["steps_kept"]) == (str(failed.pk), 2)


def test_one_key_starts_one_retry_and_another_step_is_another_request(clerk, failed, sam):
    first = actions.retry_run(failed.pk, sam, first=2, request_key="k")
    assert actions.retry_run(failed.pk, sam, first=2, request_key="k") == first
    with pytest.raises(actions.Refused) as refused:
        actions.retry_run(failed.pk, sam, first=3, request_key="k")
    assert refused.value.code == "idempotency_key_reused"


@pytest.mark.parametrize("first", [0, 4, -1])
def test_a_step_it_never_came_near_is_refused(clerk, failed, sam, first):
    failed.refresh_from_db()
    with pytest.raises(actions.Refused) as refused:
        actions.retry_run(failed.pk, sam, first=first)
    assert (refused.value.code, failed.step_count) == ("invalid", 2)


def test_behind_an_answer_there_is_nothing_to_go_on_with(clerk, sam):
    run = clerk.run(LOOK, DONE)
    assert actions.retry_run(run.pk, sam, first=2).steps_kept == 1
    with pytest.raises(actions.Refused):
        actions.retry_run(run.pk, sam, first=3)


def test_a_run_under_way_and_one_nobody_may_see_are_not_tried_again(clerk, sam):
    run = clerk.run(PAY)
    with pytest.raises(actions.Refused) as refused:
        actions.retry_run(run.pk, sam)
    assert refused.value.code == "not_ended"
    actions.cancel_run(run.pk, sam)
    with pytest.raises(actions.Refused) as refused:
        actions.retry_run(run.pk, User.objects.create_user("stranger"))
    assert refused.value.code == "not_found"
    Agent.objects.update(enabled=False)
    with pytest.raises(actions.Refused) as refused:
        actions.retry_run(run.pk, sam)
    assert refused.value.code == "unknown_agent"
    assert Run.objects.count() == 1
