"""Each part of the tour, played up to what is left to the viewer, and then to its end."""

from datetime import timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import Client

from agentapp import actions, loop
from agentapp.console import batch
from agentapp.demo import data, governance_scenarios, tour
from agentapp.demo.models import Credit, Email, Order, Refund, Ticket
from agentapp.models import Run, ToolExecution
from agentapp.sweep import sweep
from approvals.models import Approval, Event, Rule
from tests import opened


@pytest.fixture
def stage(transactional_db, settings):
    # Tools run in threads, which have connections of their own.
    people = opened.open_shop()
    settings.UNDO_HOLD_SECONDS = 0
    Rule.objects.update(hold_seconds=0)
    return tour.Stage(people, drive)


def drive() -> None:
    """What worker and beat do between two looks."""
    for run_id in sweep():
        loop.drive(run_id)


def at(sight: tour.Sight) -> Approval:
    """The request that a sight leads to."""
    return Approval.objects.get(pk=UUID(sight.path.strip("/").split("/")[1]))


def decide(stage, approval, who, type="approve", message=""):
    new = actions.NewDecision(
        id=uuid4(), type=type, version=approval.version, action_digest=approval.action_digest, message=message
    )
    actions.decide(approval.pk, new, stage.people[who])
    drive()
    return Run.objects.get(pk=approval.run_id)


def refused(stage, approval, who) -> str:
    with pytest.raises(actions.Refused) as error:
        decide(stage, approval, who)
    return error.value.code


def seen(stage, sight: tour.Sight) -> str:
    """The page that a sight leads to, as seen by the person meant to open it."""
    client = Client()
    client.force_login(stage.people[sight.who])
    page = client.get(sight.path)
    assert page.status_code == 200, sight
    return page.content.decode()


def kinds(run_id) -> list[str]:
    return list(Event.objects.filter(run_id=run_id).order_by("seq").values_list("type", flat=True))


def given(customer: str) -> Decimal:
    found = Credit.objects.filter(customer=customer, cancelled_at=None).exclude(idempotency_key__startswith="opening-")
    return sum(found.values_list("amount", flat=True), Decimal(0))


@pytest.mark.parametrize("part", tour.PARTS, ids=lambda part: part.name)
def test_every_page_of_a_part_opens_for_whom_it_is_meant_and_it_plays_twice(part, stage):
    for _ in range(2):
        for sight in part.play(stage):
            if part.name == "escalation" and sight.who == "nora":
                continue  # not hers until a minute has passed
            assert seen(stage, sight)


def test_of_the_desk_a_second_person_is_needed(stage):
    danas, _ = tour.quorum(stage)
    asked = at(danas)
    assert (asked.state, asked.risk) == ("pending", "high")
    assert not Refund.objects.exists()
    assert refused(stage, asked, "marco") == "decided_by_you"
    assert decide(stage, asked, "dana").state == "succeeded"
    assert Refund.objects.get().amount == 369


def test_of_those_who_lead_the_desk_one_is_enough(stage):
    run = stage.start(governance_scenarios.WRONG_KETTLES)
    [asked] = stage.asked(run)
    assert decide(stage, asked, "nora").state == "succeeded"
    assert Refund.objects.count() == 1


def test_what_nobody_decides_misses_its_target_and_comes_to_those_who_lead(stage):
    first, _, record = tour.escalation(stage)
    asked = at(first)
    assert asked.target_at - asked.created_at == timedelta(seconds=30)
    assert refused(stage, asked, "nora") == "forbidden"
    for seconds in (31, 61):
        times = ("created_at", "target_at", "escalates_at")
        Approval.objects.filter(pk=asked.pk).update(**{name: F(name) - timedelta(seconds=seconds) for name in times})
        sweep()
    happened = [kind for kind in kinds(asked.run_id) if kind.startswith("approval.")]
    assert happened == ["approval.requested", "approval.breached", "approval.reminded", "approval.escalated"]
    assert "approval.escalated" in seen(stage, record)
    asked.refresh_from_db()
    assert decide(stage, asked, "nora").state == "succeeded"
    assert Ticket.objects.get(pk="88155").closing_code == "no_answer_needed"


def test_a_grant_answers_for_the_small_credit_and_not_for_the_large_one(stage):
    call, large, made = tour.grant(stage)
    small = ToolExecution.objects.get(run__metadata__scenario="credit-small", name="issue_store_credit")
    assert (small.result_status, small.approval, small.allowed_by[:10]) == ("ok", None, "grant:GRT-")
    assert "grant.used" in kinds(small.run_id)
    assert small.allowed_by.removeprefix("grant:") in seen(stage, call)
    assert "12 of 60 at most" in seen(stage, made)
    assert given("40601") == 22
    assert decide(stage, at(large), "dana", "reject", "Too much.").state == "succeeded"
    assert given("40601") == 22


def test_three_like_credits_can_be_decided_in_one_table(stage):
    table, _ = tour.batch(stage)
    asked = list(Approval.objects.all())
    assert len(asked) == 3
    assert batch.objection(stage.people["dana"], asked) == ""
    assert "Halden Freight" in seen(stage, table)
    for one in asked:
        decide(stage, one, "dana")
    assert [given(number) for number in ("40117", "40310", "40552")] == [5, 5, 5]


def test_two_calls_run_as_planned_and_the_third_that_differs_is_asked_about(stage):
    whole, run_page, other = tour.plan(stage)
    approval = at(whole)
    made = ToolExecution.objects.filter(run_id=approval.run_id, name="issue_store_credit").order_by("step", "index")
    assert [one.allowed_by for one in made] == [f"plan:{approval.reference}"] * 2 + [""]
    assert [given(number) for number in ("40117", "40310", "40552")] == [8, 8, 0]
    assert "$8.00 of store credit" in seen(stage, whole)
    assert "End the plan" in seen(stage, whole)
    assert seen(stage, run_page)
    assert decide(stage, at(other), "dana", "reject", "Eight for everybody.").state == "succeeded"
    assert given("40552") == 0


def test_what_was_approved_comes_back_when_the_shop_has_changed(stage):
    again, first = (at(sight) for sight in tour.stale_world(stage))
    assert (first.state, again.state, again.supersedes) == ("superseded", "pending", first)
    [changed] = again.difference
    assert (changed["name"], changed["now"]) == ("address", tour.OFFICES[0])
    assert Order.objects.get(pk="58244").delivery_address == tour.OFFICES[0]
    assert decide(stage, again, "dana").state == "succeeded"
    assert "Congress" in Order.objects.get(pk="58244").delivery_address


def test_a_planted_account_is_of_high_risk_and_a_no_sends_nothing(stage):
    [asked] = (at(sight) for sight in tour.outside_account(stage))
    outside = {row["part"] for row in asked.provenance if row["origin"] == "outside"}
    assert (asked.risk, data.PLANTED_ACCOUNT in outside) == ("high", True)
    assert decide(stage, asked, "dana", "reject", "That is not our bank.").state == "succeeded"
    assert not Email.objects.exists()


def test_a_question_is_answered_by_another_proposal(stage):
    again, first = (at(sight) for sight in tour.ask(stage))
    assert (first.state, again.supersedes) == ("superseded", first)
    assert again.difference == [{"name": "amount", "was": 80, "now": 72, "of": "arguments"}]
    assert decide(stage, again, "dana").state == "succeeded"
    assert Refund.objects.get().amount == 72


def test_a_credit_is_taken_back_by_somebody_who_did_not_ask_for_it(stage):
    call, back = tour.undo(stage)
    assert "Undo asked for in" in seen(stage, call)
    assert given("40418") == 15
    assert refused(stage, at(back), "dana") == "starter"
    assert decide(stage, at(back), "nora").state == "succeeded"
    assert given("40418") == 0
    assert Credit.objects.filter(customer="40418", cancelled_at__isnull=False).count() == 1


def test_what_a_customer_has_had_today_counts(stage):
    danas, again = tour.totals(stage)
    first = Approval.objects.exclude(pk=at(again).pk).get()
    assert (first.rule, at(again).rule) == ("store-credit", "goodwill-a-day")
    assert at(again).title not in seen(stage, danas)
    assert "history.sum" in seen(stage, again)
    assert refused(stage, at(again), "dana") == "forbidden"
    assert decide(stage, at(again), "nora").state == "succeeded"
    assert given("40233") == 55


def test_a_part_whose_worker_does_not_run_gives_up(stage, monkeypatch):
    monkeypatch.setattr(tour, "LOOKS", 3)
    with pytest.raises(tour.TourStopped, match="Is the worker running"):
        tour.quorum(tour.Stage(stage.people, lambda: None))


class TestTheCommand:
    def test_without_a_name_it_lists_the_parts(self, capsys):
        call_command("demo_tour")
        said = capsys.readouterr().out
        assert [line.split()[0] for line in said.splitlines()[1:]] == [part.name for part in tour.PARTS]

    def test_it_says_who_opens_what(self, stage, settings, capsys, monkeypatch):
        settings.DEBUG = True
        monkeypatch.setattr("agentapp.management.commands.demo_tour.time.sleep", lambda seconds: drive())
        call_command("demo_tour", "ask", "--url", "http://shop.example/")
        again = Approval.objects.get(state="pending")
        assert f"as dana  http://shop.example/approvals/{again.pk}/" in capsys.readouterr().out

    def test_an_unknown_part_is_refused(self):
        with pytest.raises(CommandError, match="no part nonsense"):
            call_command("demo_tour", "nonsense")

    def test_it_acts_as_nobody_where_debug_is_off(self, settings):
        settings.DEBUG = False
        with pytest.raises(CommandError, match="DEBUG"):
            call_command("demo_tour", "ask")

    @pytest.mark.django_db
    def test_a_database_without_the_demo_is_told(self, settings):
        settings.DEBUG = True
        with pytest.raises(CommandError, match="--reset"):
            call_command("demo_tour", "ask")
