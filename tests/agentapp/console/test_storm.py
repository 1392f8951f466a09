"""The inbox when far more waits than anybody reads, and when nothing does."""

from collections.abc import Callable
from datetime import datetime, time, timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions, executions, preferences, runs
from agentapp.console import queue
from agentapp.messages import ToolResult
from agentapp.models import KillSwitch, Preferences, ToolExecution
from approvals import decisions, ledger
from approvals.escalation import Step
from approvals.ids import uuid7
from approvals.models import Approval, Question

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]
MAX_QUERIES = 12


def bulk(like: Approval, count: int, waiting: int) -> None:
    """Rows as the writer makes them, in bulk: `waiting` of them wait, the others have ended."""
    now = timezone.now()
    call = ToolExecution.objects.get(approval=like)
    rows, calls = [], []
    for number in range(count):
        row, its_call = Approval(**vars_of(like)), ToolExecution(**vars_of(call))
        row.pk, row.execution_id, row.created_at = uuid7(), uuid7(), now
        its_call.pk, its_call.approval, its_call.index = row.execution_id, row, number + 1
        calls.append(its_call)
        row.expires_at = now + timedelta(hours=1, seconds=number)
        if number >= waiting:
            row.state, row.decided_at, row.runs_at = Approval.State.REJECTED, now, now
        rows.append(row)
    Approval.objects.bulk_create(rows, batch_size=500)
    ToolExecution.objects.bulk_create(calls, batch_size=500)


def vars_of(like: Model) -> dict[str, object]:
    return {field.attname: getattr(like, field.attname) for field in like._meta.concrete_fields}


def test_ten_thousand_requests_cost_no_more_questions_than_one(page: Client, waiting: Waiting, dana: User) -> None:
    approval = waiting()
    bulk(approval, 10_000, waiting=199)
    actions.claim_request(approval.pk, dana)

    for query in ("", "?view=mine", "?view=free", "?view=decided", "?sort=cost&risk=medium", "?q=nothing"):
        with CaptureQueriesContext(connection) as captured:
            page.get(f"/inbox/{query}")
        assert len(captured) <= MAX_QUERIES, query


class TestStorm:
    def test_requests_are_counted_by_tool_and_policy_with_a_way_to_each(
        self, page: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queue, "STORM", 3)
        for tool in ("issue_credit", "issue_credit", "issue_credit", "send_email"):
            waiting(tool=tool, title=f"Call of {tool}")

        html = page.get("/inbox/").content.decode()

        assert "4 requests are waiting." in html
        assert "Call of" not in html
        href = "/inbox/?tool=issue_credit&amp;rule=refunds-over-limit&amp;agent=support&amp;all=1"
        assert href in html
        assert len(page.get(href.replace("&amp;", "&")).context["queue"].rows) == 3
        assert len(page.get("/inbox/?all=1").context["queue"].rows) == 4

    def test_it_is_refreshed_as_a_storm(self, page: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queue, "STORM", 1)
        waiting()
        waiting()

        assert "2 requests are waiting." in page.get("/inbox/rows/?storm=1&first=1").content.decode()

    def test_who_may_stop_things_pauses_the_agent_that_makes_them(
        self, client: Client, page: Client, waiting: Waiting, mia: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queue, "STORM", 1)
        waiting()
        waiting()
        assert "Pause this agent" not in page.get("/inbox/").content.decode()
        client.force_login(mia)

        assert "Pause this agent" in client.get("/inbox/").content.decode()
        client.post("/switches/", {"target": "agent:support", "reason": "2 requests were waiting."})

        assert KillSwitch.objects.get().key == "support"


class TestNothing:
    def test_it_says_what_one_did_today(self, page: Client, waiting: Waiting) -> None:
        for _ in range(3):
            approval = waiting()
            page.post(f"/approvals/{approval.pk}/decide/", posted(approval))
            mine = approval.decisions.get().decided_at
            Approval.objects.filter(pk=approval.pk).update(created_at=mine - timedelta(seconds=62))

        assert "You decided 3 today, median 1:02." in page.get("/inbox/").content.decode()

    def test_the_time_a_question_stopped_the_clock_is_not_mine(
        self, waiting: Waiting, page: Client, dana: User
    ) -> None:
        approval = waiting()
        earlier = timezone.now() - timedelta(seconds=100)
        Approval.objects.filter(pk=approval.pk).update(created_at=earlier, paused_seconds=90)
        page.post(f"/approvals/{approval.pk}/decide/", posted(approval))

        decided, median = queue.my_day(dana)

        assert decided == 1
        assert median is not None
        assert median < timedelta(seconds=20)

    def test_what_was_asked_after_my_decision_takes_nothing_of_my_time(
        self, waiting: Waiting, page: Client, dana: User, marco: User
    ) -> None:
        approval = waiting()
        page.post(f"/approvals/{approval.pk}/decide/", posted(approval))
        mine = approval.decisions.get().decided_at
        Approval.objects.filter(pk=approval.pk).update(created_at=mine - timedelta(seconds=100), paused_seconds=90)
        Question.objects.create(approval=approval, asker=marco, asked_at=mine, answer_by=mine + timedelta(hours=1))

        assert queue.my_day(dana) == (1, timedelta(seconds=100))

    def test_nothing_claimed_says_what_could_be(self, page: Client, waiting: Waiting) -> None:
        waiting()

        html = page.get("/inbox/?view=mine").content.decode()

        assert "You have claimed nothing" in html
        assert "1 request is unclaimed" in html

    def test_nothing_matching_says_how_many_wait_elsewhere(self, page: Client, waiting: Waiting) -> None:
        waiting()
        waiting()

        assert "2 requests are waiting without this filter" in page.get("/inbox/?risk=critical").content.decode()


class TestNotices:
    def test_they_name_no_arguments_unless_one_wants_that(self, page: Client, waiting: Waiting, dana: User) -> None:
        waiting(title="Refund $214.50 to Ana", risk="high", expires_seconds=380)

        [discreet] = page.get("/inbox/notices/").json()["notices"]
        Preferences.objects.create(user=dana, shows_arguments=True)
        [plain] = page.get("/inbox/notices/").json()["notices"]

        assert discreet["title"] == "High-risk refund payment is waiting"
        assert discreet["body"].startswith("Due in 6")
        assert plain["title"] == "Refund $214.50 to Ana"

    def test_who_wants_none_gets_none(self, page: Client, waiting: Waiting, dana: User) -> None:
        waiting()
        Preferences.objects.create(user=dana, notifications={"waiting": ["mail"]})

        assert page.get("/inbox/notices/").json() == {"notices": []}

    def test_below_the_risk_that_one_named_there_is_none(self, page: Client, waiting: Waiting, dana: User) -> None:
        waiting(title="Small", risk="low")
        waiting(title="Large", risk="critical")
        Preferences.objects.create(user=dana, least_risk="high", shows_arguments=True)

        assert [told["title"] for told in page.get("/inbox/notices/").json()["notices"]] == ["Large"]

    def test_quiet_hours_hold_for_browsers_too(
        self, page: Client, waiting: Waiting, dana: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waiting()
        Preferences.objects.create(user=dana, quiet_from=time(22), quiet_until=time(7))

        for hour, told in ((23, 0), (6, 0), (12, 1)):
            now = timezone.make_aware(datetime(2026, 3, 2, hour))
            monkeypatch.setattr("agentapp.console.notices.timezone.now", lambda now=now: now)
            assert len(page.get("/inbox/notices/").json()["notices"]) == told, hour

    def test_they_tell_of_what_one_may_see_and_has_not_put_off(
        self, client: Client, page: Client, waiting: Waiting, dana: User, otto: User
    ) -> None:
        approval = waiting()
        actions.snooze_request(approval.pk, "15m", dana)

        assert page.get("/inbox/notices/").json() == {"notices": []}
        client.force_login(otto)
        assert client.get("/inbox/notices/").json() == {"notices": []}

    def test_each_tick_of_the_browser_tells_what_it_says(
        self, page: Client, waiting: Waiting, sam: User, dana: User, marco: User, leads: Group
    ) -> None:
        dana.groups.add(leads)
        handed, due, asked = waiting(expires_seconds=1800), waiting(expires_seconds=600), waiting(expires_seconds=1800)
        late = waiting(escalation=(Step(60, remind=True), Step(120, "leads")))
        actions.hand_over(handed.pk, dana, "Yours?", marco)
        actions.claim_request(due.pk, dana)
        question = actions.ask_agent(asked.pk, "Why so much?", dana)
        actions.post_comment(asked.pk, "@dana see above. @danae too.", marco)
        failed = run_and_failed(waiting(risk="high"), dana)
        with ledger.transaction():
            assert decisions.answer(question.pk, "It was broken.")
        for _ in late.escalation:
            Approval.objects.filter(pk=late.pk).update(escalates_at=timezone.now() - timedelta(seconds=1))
            with ledger.transaction():
                assert decisions.escalate(late.pk)

        told = {kind: titles(page, dana, kind) for kind in preferences.DEFAULTS}

        risky = "Medium-risk refund payment"
        assert len(told.pop("waiting")) == 4
        assert told == {
            "handed": [(f"{risky} was handed to you", handed)],
            "due_soon": [(f"{risky} is due soon", due)],
            "answered": [(f"{risky} has an answer", asked)],
            "mentioned": [(f"{risky} has a comment that mentions you", asked)],
            "call_failed": [("High-risk refund payment failed", failed)],
            "reminded": [(f"{risky} still waits for your team", late)],
            "escalated": [(f"{risky} is for your team now, too", late)],
        }

    def test_what_is_for_my_team_now_too_is_told_once(
        self, page: Client, waiting: Waiting, dana: User, leads: Group
    ) -> None:
        dana.groups.add(leads)
        late = waiting(escalation=(Step(60, "leads"),))
        Approval.objects.filter(pk=late.pk).update(escalates_at=timezone.now() - timedelta(seconds=1))
        with ledger.transaction():
            assert decisions.escalate(late.pk)
        Preferences.objects.create(user=dana, notifications={"waiting": ["browser"], "escalated": ["browser"]})

        assert [told["id"] for told in page.get("/inbox/notices/").json()["notices"]] == [str(late.pk)]

    def test_it_is_news_again_when_it_is_handed_over_again_and_none_when_it_waits_no_longer(
        self, page: Client, waiting: Waiting, dana: User, marco: User
    ) -> None:
        approval = waiting()
        seen = []
        for _ in range(2):
            actions.hand_over(approval.pk, dana, "", marco)
            seen += [told["id"] for told in notices(page, dana, "handed")]
            actions.release_claim(approval.pk, dana)
            assert notices(page, dana, "handed") == []
        assert len(set(seen)) == 2

    def test_nothing_is_told_of_what_one_may_not_see_any_more(
        self, page: Client, waiting: Waiting, dana: User, marco: User
    ) -> None:
        approval = waiting()
        question = actions.ask_agent(approval.pk, "Why?", dana)
        actions.post_comment(approval.pk, "@dana?", marco)
        with ledger.transaction():
            decisions.answer(question.pk, "Because.")
        run_and_failed(waiting(), dana)
        dana.groups.clear()

        for kind in preferences.DEFAULTS:
            assert notices(page, dana, kind) == [], kind


@pytest.fixture
def leads(roles: dict[str, Group]) -> Group:
    return Group.objects.create(name="leads")


def notices(page: Client, user: User, kind: str) -> list[dict[str, str]]:
    """What the browser tells a person who has ticked only this kind."""
    ticked: dict[str, list[str]] = {each: ["browser"] if each == kind else [] for each in preferences.DEFAULTS}
    preferences.set_notifications(user, ticked, None, False)
    found: list[dict[str, str]] = page.get("/inbox/notices/").json()["notices"]
    return found


def titles(page: Client, user: User, kind: str) -> list[tuple[str, Approval]]:
    """The same, each as its title and the request it leads to."""
    found = notices(page, user, kind)
    return [(one["title"], Approval.objects.get(pk=one["url"].split("/")[2])) for one in found]


def run_and_failed(approval: Approval, by: User) -> Approval:
    """A request that was approved, and whose call ran and failed."""
    incoming = decisions.Incoming(uuid7(), "approve", by, approval.version, approval.action_digest)
    with ledger.transaction():
        runs.lock(approval.run_id)
        taken = decisions.decide(approval.pk, incoming, timedelta(hours=1))
        assert isinstance(taken, decisions.Taken)
        Approval.objects.filter(pk=approval.pk).update(runs_at=timezone.now() - timedelta(seconds=1))
        taken.approval.refresh_from_db()
        assert decisions.consume(taken.approval)
        execution = ToolExecution.objects.get(approval=approval)
        executions.begin(execution, execution.arguments_text, f"key-{execution.pk}")
        executions.finish(
            [executions.Outcome(execution, ToolResult("fatal_error", reason="refused", message="The bank said no."))]
        )
    approval.refresh_from_db()
    return approval
