"""Several calls approved as one plan: what may be in one, what runs under it, and what asks all the same."""

import html
import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions, auth, plan_use
from agentapp.console import batch
from agentapp.models import Tool, ToolExecution
from agentapp.refused import Refused
from agentapp.tools.base import tool
from approvals import cards, ledger, planned, plans, sealed, standing
from approvals.digest import canonical
from approvals.masking import MASK
from approvals.models import Approval, Decision, Event, PlannedCall, Rule
from tests import admin_pages
from tests.clerk_tools import BALANCES, EFFECTS, effects_of
from tests.conftest import call, calls, says
from tests.grants import grant_from
from tests.plans import ANN, BOB, EVE, a_plan, approved_plan, let_plan, look_away, made, meanwhile, refund
from tests.plans import planned as item
from tests.races import few_tries, race


@pytest.fixture(autouse=True)
def _plans(clerk, offer, settings):
    offer(refund, look_away)
    let_plan(clerk, settings)


@tool(effect="compensable", title="Enroll {holder}", pii=("holder",), secret=("pin",))
def enroll(holder: str, pin: str) -> str:
    """Enroll somebody."""
    return "done"


@tool(effect="compensable", title="Greet {holder}", pii=("holder",))
def greet(holder: str) -> str:
    """Greet somebody."""
    return "done"


HER = item("greet", holder="Mirabel Quell")


def seen_by(user, run, *urls: str) -> str:
    """What pages and the API say of a run and its first call."""
    _, secret = auth.issue_token(user, "reading", [s for s in auth.SCOPES if s.endswith(":read")], "test")
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    client.force_login(user)
    answers = [client.get(url) for url in (f"/runs/{run.pk}/?step=1&call=0", f"/api/v1/runs/{run.pk}/trace", *urls)]
    assert {answer.status_code for answer in answers} == {200}
    return "\n".join(html.unescape(answer.content.decode()) for answer in answers)


def refunds() -> list[str]:
    return [each["account"] for each in effects_of("refund")]


def rewritten() -> None:
    """Change the first amount of the only plan, and every digest that is made from it."""
    approval, call = Approval.objects.get(), PlannedCall.objects.get(position=1)
    Approval.objects.update(plan_text=approval.plan_text.replace(r"\"amount\":5,", r"\"amount\":500,"))
    approval.refresh_from_db()
    digest, text = cards.final_digest(approval), canonical({**json.loads(call.arguments_text), "amount": 500})
    Approval.objects.update(final_digest=digest)
    Decision.objects.update(action_digest=digest)
    bound = planned.call_digest(approval, 1, call.tool, call.tool_version, json.loads(text))
    PlannedCall.objects.filter(pk=call.pk).update(arguments_text=text, action_digest=bound)


def plan_events(run) -> list[str]:
    found = Event.objects.filter(chain=ledger.run_chain(run.pk), type__startswith="plan.").order_by("seq")
    return list(found.values_list("type", flat=True))


class TestAPlan:
    def test_is_one_request_and_nothing_of_it_runs_before_somebody_approves(self, clerk):
        run = clerk.run(a_plan(ANN, BOB, EVE), says("done"))
        [approval] = clerk.open(run)
        assert (approval.kind, approval.tool, approval.title) == (
            "plan", "propose_plan", "Carry out 3 calls as one plan",
        )  # fmt: skip
        assert approval.effect_class == "compensable"
        assert (EFFECTS, PlannedCall.objects.count()) == ([], 0)

    def test_is_left_to_a_process_that_has_the_code_of_all_its_tools(self, clerk):
        Tool.objects.filter(name="refund").update(version="2" * 64)
        run = clerk.run(a_plan(ANN, BOB), says("done"))
        assert (run.state, run.wake_at is not None, clerk.open(run)) == ("queued", True, [])

    def test_shows_each_call_in_the_words_of_its_tool_with_the_state_it_rests_on(self, clerk):
        [approval] = clerk.open(clerk.run(a_plan(ANN, BOB), says("done")))
        first, second = planned.calls_in(approval.plan_text)
        assert "".join(piece["text"] for piece in first.sentence) == "The agent will refund $5.00 to Ann (ann)."
        assert (first.snapshot["balance"], first.effects[0]["title"], first.risk) == (100, "$5.00 leaves", "medium")
        assert (second.title, second.arguments) == (
            "Refund $7.00 to bob", {"account": "bob", "amount": 7, "how": "well"},
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("step_up", "assurance", "needed"),
        [
            ({"compensable": "totp"}, "", "totp"),
            ({}, "passkey", "passkey"),
            ({"compensable": "totp"}, "signed", "signed"),
        ],
    )
    def test_asks_of_its_approver_what_the_hardest_of_its_calls_does(self, clerk, settings, step_up, assurance, needed):
        settings.STEP_UP = step_up
        Rule.objects.create(name="refunds", tool="refund", verdict="ask", risk="medium", assurance=assurance)
        [approval] = clerk.open(clerk.run(a_plan(ANN, EVE), says("done")))
        assert approval.assurance_needed == needed

    def test_keeps_what_the_model_says_it_is_for_apart_from_our_words(self, clerk):
        [approval] = clerk.open(clerk.run(a_plan(ANN, BOB, purpose="Trust me, all is fine."), says("done")))
        assert approval.explanation.startswith("Trust me")
        assert "Trust me" not in approval.title + str(approval.sentence) + approval.plan_text

    def test_is_approved_or_rejected_as_a_whole(self, clerk, dana):
        [approval] = clerk.open(clerk.run(a_plan(ANN, BOB), says("done")))
        assert approval.allowed_decisions == ["approve", "reject"]
        with pytest.raises(Refused):
            clerk.decide(approval, dana, "edit", arguments_text=approval.arguments_text)

    def test_lets_its_calls_run_as_planned_and_each_row_says_which_plan_allowed_it(self, clerk, dana):
        run, approval = approved_plan(
            clerk, dana, [ANN, BOB, EVE], calls(made("a", ANN)), calls(made("b", BOB)), calls(made("c", EVE))
        )
        assert (run.state, refunds(), effects_of("label")) == ("succeeded", ["ann", "bob"], [{"text": "settled"}])
        rows = [clerk.execution(run, id) for id in "abc"]
        assert {row.allowed_by for row in rows} == {f"plan:{approval.reference}"}
        assert [row.approval for row in rows] == [None, None, None]
        assert list(approval.planned_calls.values_list("used_by", flat=True)) == [row.pk for row in rows]
        assert plan_events(run) == ["plan.taken_up", "plan.used", "plan.used", "plan.used"]
        assert ledger.verify()[1] is None

    def test_lets_all_its_calls_run_from_one_reply(self, clerk, dana):
        run, _ = approved_plan(clerk, dana, [ANN, BOB, EVE], calls(made("a", ANN), made("b", BOB), made("c", EVE)))
        assert (run.state, refunds(), len(effects_of("label"))) == ("succeeded", ["ann", "bob"], 1)
        assert Approval.objects.filter(run_id=run.pk).count() == 1

    def test_is_told_to_the_model_call_by_call_once_it_is_approved(self, clerk, dana):
        run, _ = approved_plan(clerk, dana, [ANN, BOB])
        told = clerk.execution(run, "plan")
        assert "make these calls now, exactly as they stand here" in told.message
        assert [each["arguments"]["account"] for each in told.value["approved"]] == ["ann", "bob"]

    def test_is_masked_as_its_calls_are_by_themselves(self, clerk, offer, mia):
        offer(greet)
        run = clerk.run(a_plan(HER, EVE, purpose="To greet her."), says("done"))
        [approval] = clerk.open(run)
        assert approval.pii_fields == clerk.execution(run, "plan").pii_fields == ["holder"]
        text = seen_by(mia, run, f"/approvals/{approval.pk}/", f"/api/v1/approvals/{approval.pk}")
        assert ("To greet her" in text, MASK in text, "Mirabel" in text) == (True, True, False)

    def test_that_is_refused_shows_no_secret_of_the_calls_it_names(self, clerk, offer, ada):
        offer(enroll)
        her = item("enroll", holder="Ann", pin="Zq-90817")
        run = clerk.run(a_plan(her, EVE), calls(call("p", "propose_plan", calls=[her]), text="With Zq-90817."))
        execution = clerk.execution(run, "plan")
        assert (execution.result_status, execution.secret_fields) == ("refused", ["pin"])
        admin = [admin_pages.address(ToolExecution, "change", clerk.execution(run, id).pk) for id in ("plan", "p")]
        text = seen_by(ada, run, f"/runs/{run.pk}/?step=2&call=0", f"/runs/{run.pk}/?step=2", *admin)
        assert ("Ann" in text, "Zq-90817" in text) == (True, False)

    def test_that_nobody_can_read_is_masked_where_it_names_a_tool_with_a_secret(self, clerk, offer, ada):
        offer(enroll)
        broken = {**call("plan", "propose_plan"), "arguments": '{"calls": [{"tool": "enroll", "pin": "Zq-90817"'}
        run = clerk.run(calls(broken), says("done"))
        assert clerk.execution(run, "plan").secret_fields == ["pin"]
        assert "Zq-90817" not in seen_by(ada, run)

    def test_cannot_be_allowed_by_a_rule(self, clerk):
        Rule.objects.create(name="yes", tool="propose_plan", verdict="allow")
        assert clerk.run(a_plan(ANN, BOB), says("done")).waiting_for == "approval"

    def test_cannot_be_allowed_ahead_by_a_grant(self, clerk, dana):
        [approval] = clerk.open(clerk.run(a_plan(ANN, BOB), says("done")))
        with pytest.raises(Refused):
            grant_from(approval, dana)


class TestWhoHasARightToDecide:
    def test_finds_a_plan_in_the_inbox_like_any_request(self, clerk, dana):
        clerk.run(a_plan(ANN, BOB), says("done"))
        client = Client()
        client.force_login(dana)
        assert "Carry out 2 calls as one plan" in client.get("/inbox/").content.decode()

    def test_reads_what_has_come_of_each_call_and_ends_the_rest_by_a_post_alone(self, clerk, dana):
        run, approval = approved_plan(clerk, dana, [ANN, BOB], calls(made("a", ANN)), calls(made("b", BOB, amount=9)))
        client = Client()
        client.force_login(dana)
        page = client.get(f"/approvals/{approval.pk}/").content.decode()
        assert "Made" in page
        assert "Not made yet" in page
        assert f"The plan {approval.reference}" in client.get(f"/runs/{run.pk}/?step=2&call=0").content.decode()
        address = f"/approvals/{approval.pk}/plan/end/"
        assert client.get(address).status_code == 405
        assert client.post(address, {"reason": ""}).status_code == 422
        assert client.post(address, {"reason": "Enough."}).status_code == 302
        assert "Ended: Enough." in client.get(f"/approvals/{approval.pk}/").content.decode()

    def test_reads_that_a_run_has_ended_with_a_call_not_made(self, clerk, dana):
        _, approval = approved_plan(clerk, dana, [ANN, BOB], calls(made("a", ANN)))
        client = Client()
        client.force_login(dana)
        page = client.get(f"/approvals/{approval.pk}/").content.decode()
        assert "Not made: the run has ended" in page
        assert "End the plan" not in page

    def test_decides_a_plan_in_no_batch(self, clerk, dana):
        picked = [clerk.open(clerk.run(a_plan(ANN, item), says("done")))[0] for item in (BOB, EVE)]
        assert "call by call" in batch.objection(dana, picked)


class TestRejecting:
    def test_a_plan_runs_nothing_and_the_agent_reads_why(self, clerk, dana):
        run = clerk.run(a_plan(ANN, BOB), says("done"))
        [approval] = clerk.open(run)
        clerk.decide(approval, dana, "reject", message="Ann was paid yesterday.")
        run = clerk.drive(run)
        assert "Ann was paid yesterday." in clerk.execution(run, "plan").message
        assert (EFFECTS, PlannedCall.objects.count()) == ([], 0)

    def test_a_plan_is_not_proposed_again_as_it_was(self, clerk, dana):
        run = clerk.run(a_plan(ANN, BOB), a_plan(ANN, BOB, id="again"), says("done"))
        clerk.decide(clerk.open(run)[0], dana, "reject", message="No.")
        run = clerk.drive(run)
        assert clerk.execution(run, "again").reason == "previously_rejected"

    def test_a_plan_leaves_each_of_its_calls_to_be_asked_about(self, clerk, dana):
        run = clerk.run(a_plan(ANN, BOB), calls(made("a", ANN)), says("done"))
        clerk.decide(clerk.open(run)[0], dana, "reject", message="No.")
        assert clerk.drive(run).waiting_for == "approval"


class TestAskingBeforeDeciding:
    def asked(self, clerk, dana, *instead):
        reply = a_plan(ANN, BOB) | {"answer": {"text": "Better so.", "tool_calls": [*instead]}}
        run = clerk.run(reply, calls(made("a", ANN)), calls(made("c", EVE)), says("done"))
        actions.ask_agent(clerk.open(run)[0].pk, "Why Bob?", dana)
        return clerk.drive(run)

    def test_lets_the_agent_propose_another_plan_which_is_then_the_one_that_counts(self, clerk, dana):
        run = self.asked(clerk, dana, call("i", "propose_plan", purpose="Only Ann, and the label.", calls=[ANN, EVE]))
        [approval] = clerk.open(run)
        assert [one.tool for one in planned.calls_in(approval.plan_text)] == ["refund", "label"]
        clerk.decide(approval, dana)
        run = clerk.drive(run)
        assert (run.state, refunds(), len(effects_of("label"))) == ("succeeded", ["ann"], 1)

    def test_lets_no_plan_in_that_could_not_have_been_proposed(self, clerk, dana):
        irreversible = item("pay", account="ann", amount=5)
        run = self.asked(clerk, dana, call("i", "propose_plan", purpose="Pay.", calls=[ANN, irreversible]))
        assert [one.tool for one in planned.calls_in(clerk.open(run)[0].plan_text)] == ["refund", "refund"]


class TestACallThatIsNotInThePlan:
    def test_waits_for_a_person(self, clerk, dana):
        run, _ = approved_plan(clerk, dana, [ANN, BOB], calls(made("a", ANN)), calls(made("b", BOB, amount=70)))
        assert (run.waiting_for, refunds()) == ("approval", ["ann"])
        assert clerk.open(run)[0].kind == "authorization"

    def test_of_another_run_waits_for_a_person(self, clerk, dana):
        approved_plan(clerk, dana, [ANN, BOB])
        run = clerk.run(calls(made("a", ANN)), says("done"))
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_waits_for_a_person_when_its_turn_has_not_come(self, clerk, dana):
        run, approval = approved_plan(clerk, dana, [ANN, BOB], calls(made("b", BOB)))
        assert (run.waiting_for, refunds()) == ("approval", [])
        assert f"It is planned in {approval.reference}" in clerk.open(run)[0].reason


class TestAPlannedCall:
    def test_runs_once(self, clerk, dana):
        Tool.objects.filter(name="refund").update(repeatable=True)
        run, _ = approved_plan(clerk, dana, [ANN, BOB], calls(made("a", ANN)), calls(made("a2", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", ["ann"])

    def test_twice_in_a_reply_runs_once(self, clerk, dana):
        Tool.objects.filter(name="refund").update(repeatable=True)
        run, _ = approved_plan(clerk, dana, [ANN, BOB], calls(made("a", ANN), made("a2", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", ["ann"])

    def test_that_failed_leaves_what_stands_after_it_to_people(self, clerk, dana):
        broken = item("refund", account="ann", amount=5, how="broken")
        run, _ = approved_plan(clerk, dana, [broken, BOB], calls(made("a", broken)), calls(made("b", BOB)))
        assert (run.waiting_for, refunds()) == ("approval", ["ann"])

    def test_that_a_person_let_run_by_itself_does_not_keep_the_next_from_running(self, clerk, dana):
        moved = meanwhile("move", lambda: BALANCES.update(ann=3))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], moved, calls(made("a", ANN)), calls(made("b", BOB)))
        [again] = clerk.open(run)
        clerk.decide(again, dana)
        run = clerk.drive(run)
        assert (run.state, refunds()) == ("succeeded", ["ann", "bob"])
        assert clerk.execution(run, "b").allowed_by.startswith("plan:")

    @pytest.mark.parametrize(
        ("decision", "acted"),
        [
            ({"type": "edit", "arguments_text": '{"account": "ann", "amount": 500, "how": "well"}'}, ["ann"]),
            ({"type": "respond", "message": "Refunded by hand."}, []),
        ],
        ids=["changed", "answered"],
    )
    def test_that_did_not_run_as_planned_leaves_what_stands_after_it_to_people(self, clerk, dana, decision, acted):
        moved = meanwhile("move", lambda: BALANCES.update(ann=3))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], moved, calls(made("a", ANN)), calls(made("b", BOB)))
        [again] = clerk.open(run)
        clerk.decide(again, dana, **decision)
        run = clerk.drive(run)
        assert (run.waiting_for, refunds()) == ("approval", acted)

    def test_whose_world_has_changed_returns_to_the_queue_and_says_what_changed(self, clerk, dana):
        moved = meanwhile("move", lambda: BALANCES.update(ann=3))
        run, approval = approved_plan(clerk, dana, [ANN, BOB], moved, calls(made("a", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", [])
        [asked] = clerk.open(run)
        assert asked.difference == [{"name": "balance", "was": 100, "now": 3}]
        assert approval.reference in asked.reason
        assert asked.kind == "authorization"

    def test_whose_tool_has_changed_returns_to_the_queue(self, clerk, dana):
        changed = meanwhile("change", lambda: Tool.objects.filter(name="refund").update(version="2" * 64))
        approved_plan(clerk, dana, [ANN, BOB], changed, calls(made("a", ANN)))
        assert refunds() == []

    @pytest.mark.parametrize("asked", [True, False], ids=["the ledger is asked", "it is not"])
    def test_that_was_rewritten_with_its_plan_and_all_digests_asks(self, clerk, dana, monkeypatch, asked):
        """Only the ledger still has what people approved."""
        if not asked:
            monkeypatch.setattr(standing, "_is_recorded", lambda approval, given: True)
        change = meanwhile("change", rewritten)
        run, _ = approved_plan(clerk, dana, [ANN, BOB], change, calls(made("a", ANN, amount=500)))
        assert (refunds() == []) == asked
        assert (run.waiting_for == "approval") == asked

    def test_that_a_rule_forbids_by_now_does_not_run(self, clerk, dana):
        forbid = meanwhile("forbid", lambda: Rule.objects.create(name="no", tool="refund", verdict="deny"))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], forbid, calls(made("a", ANN)))
        assert (clerk.execution(run, "a").reason, refunds()) == ("policy_changed", [])

    @pytest.mark.parametrize(
        "terms",
        [{"risk": "high"}, {"approvals_needed": 2}, {"risk": "critical"}, {"allowed_decisions": ["reject"]}],
        ids=["of more risk", "of more people", "critical", "of no approval"],
    )
    def test_that_stricter_rules_ask_about_returns_to_the_queue(self, clerk, dana, terms):
        stricter = {"name": "more", "tool": "refund", "verdict": "ask", "risk": "medium", **terms}
        change = meanwhile("change", lambda: Rule.objects.create(**stricter))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], change, calls(made("a", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_that_asks_more_of_its_approver_by_now_returns_to_the_queue(self, clerk, dana, settings):
        change = meanwhile("change", lambda: setattr(settings, "STEP_UP", {"compensable": "totp"}))
        run, approval = approved_plan(clerk, dana, [ANN, BOB], change, calls(made("a", ANN)))
        assert approval.assurance_needed == ""
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_that_a_rule_has_signed_by_now_returns_to_the_queue(self, clerk, dana):
        rule = {"name": "signed", "tool": "refund", "verdict": "ask", "risk": "medium", "assurance": "signed"}
        change = meanwhile("change", lambda: Rule.objects.create(**rule))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], change, calls(made("a", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_that_is_decided_by_others_by_now_returns_to_the_queue(self, clerk, dana):
        def change():
            Rule.objects.create(name="others", tool="refund", verdict="ask", risk="medium").groups.add(
                Group.objects.create(name="payers")
            )

        run, _ = approved_plan(clerk, dana, [ANN, BOB], meanwhile("change", change), calls(made("a", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_that_cannot_be_taken_back_by_now_returns_to_the_queue(self, clerk, dana):
        change = meanwhile("change", lambda: Tool.objects.filter(name="refund").update(effect_class="irreversible"))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], change, calls(made("a", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_returns_to_the_queue_when_whoever_approved_may_no_longer_decide(self, clerk, dana):
        left = meanwhile("left", dana.groups.clear)
        run, _ = approved_plan(clerk, dana, [ANN, BOB], calls(made("a", ANN)), left, calls(made("b", BOB)))
        assert (run.waiting_for, refunds()) == ("approval", ["ann"])

    def test_needs_no_plan_where_a_rule_allows_it_by_now(self, clerk, dana):
        allow = meanwhile("allow", lambda: Rule.objects.create(name="yes", tool="refund", verdict="allow"))
        run, _ = approved_plan(clerk, dana, [ANN, EVE], allow, calls(made("a", ANN)), calls(made("c", EVE)))
        assert (run.state, refunds(), len(effects_of("label"))) == ("succeeded", ["ann"], 1)

    def test_stays_out_of_a_request_that_was_changed_by_hand(self, clerk, dana):
        def change():
            row = PlannedCall.objects.get(position=1)
            text = row.arguments_text.replace('"amount":5', '"amount":500')
            digest = planned.call_digest(row.approval, 1, row.tool, row.tool_version, {"account": "ann", "amount": 500,
                                                                                        "how": "well"})  # fmt: skip
            PlannedCall.objects.filter(pk=row.pk).update(arguments_text=text, action_digest=digest)

        changed = meanwhile("change", change)
        run, _ = approved_plan(clerk, dana, [ANN, BOB], changed, calls(made("a", ANN, amount=500)))
        assert (run.waiting_for, refunds()) == ("approval", [])


class TestNothingOfAnExpiredPlan:
    def test_runs(self, clerk, dana):
        past = timezone.now() - timedelta(hours=1)
        late = meanwhile("late", lambda: PlannedCall.objects.update(use_by=past))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], late, calls(made("a", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_runs_when_its_time_ends_between_proposal_and_act(self, clerk, dana):
        past = timezone.now() - timedelta(hours=1)
        late = call("late", "look_away", name="late")
        meanwhile("late", lambda: PlannedCall.objects.update(use_by=past))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], calls(late, made("a", ANN)))
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_that_nobody_decided_is_written_down(self, clerk, dana):
        run = clerk.run(a_plan(ANN, BOB), calls(made("a", ANN)), says("done"))
        Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        [approval] = Approval.objects.all()
        with pytest.raises(Refused):
            clerk.decide(approval, dana)
        run = clerk.drive(run)
        assert (EFFECTS, PlannedCall.objects.count()) == ([], 0)


class TestWhatIsLeftOfAPlan:
    def test_is_ended_by_a_person_with_a_reason_that_stays_on_record(self, clerk, dana, marco):
        run, approval = approved_plan(
            clerk, dana, [ANN, BOB, EVE], calls(made("a", ANN)), calls(call("q", "send", to="x")), calls(made("b", BOB))
        )
        actions.end_plan(approval.pk, "Bob called: he has his money.", marco)
        clerk.decide(clerk.open(run)[0], dana)
        run = clerk.drive(run)
        assert (run.waiting_for, refunds()) == ("approval", ["ann"])
        ended = Event.objects.get(chain=ledger.run_chain(run.pk), type="plan.ended")
        assert ended.data["positions"] == [2, 3]
        assert sealed.opens("Bob called: he has his money.", approval.salt, ended.data["why"])
        assert ended.actor == ledger.actor_of(marco)

    def test_is_ended_once(self, clerk, dana, marco):
        _, approval = approved_plan(clerk, dana, [ANN, BOB])
        actions.end_plan(approval.pk, "Enough.", marco)
        with pytest.raises(Refused) as refused:
            actions.end_plan(approval.pk, "Enough.", marco)
        assert refused.value.code == "nothing_left"

    def test_is_not_ended_without_a_reason(self, clerk, dana):
        _, approval = approved_plan(clerk, dana, [ANN, BOB])
        with pytest.raises(Refused):
            actions.end_plan(approval.pk, " ", dana)

    @pytest.mark.parametrize(("who", "code"), [("otto", "not_found"), ("sam", "forbidden")])
    def test_is_not_ended_by_those_who_may_not(self, clerk, dana, request, who, code):
        _, approval = approved_plan(clerk, dana, [ANN, BOB])
        with pytest.raises(Refused) as refused:
            actions.end_plan(approval.pk, "No.", request.getfixturevalue(who))
        assert refused.value.code == code

    def test_ends_when_a_person_takes_the_run_over(self, clerk, dana, marco):
        run, approval = approved_plan(
            clerk, dana, [ANN, BOB], calls(made("a", ANN)), calls(call("q", "send", to="x")), calls(made("b", BOB))
        )
        actions.take_over_run(run.pk, marco)
        assert approval.planned_calls.get(position=2).ended_why == "A person has taken the run over."
        actions.hand_back_run(run.pk, marco)
        clerk.decide(clerk.open(run)[0], dana)
        run = clerk.drive(run)
        assert (run.waiting_for, refunds()) == ("approval", ["ann"])

    def test_ends_when_a_newer_plan_is_approved(self, clerk, dana):
        run, first = approved_plan(clerk, dana, [ANN, BOB], a_plan(BOB, EVE, id="next"), calls(made("a", ANN)))
        [second] = clerk.open(run)
        clerk.decide(second, dana)
        run = clerk.drive(run)
        assert set(first.planned_calls.values_list("ended_why", flat=True)) == {plans.REPLACED}
        assert (run.waiting_for, refunds()) == ("approval", [])

    def test_of_two_plans_of_a_run_the_newer_one_allows_its_calls(self, clerk, dana):
        run, first = approved_plan(
            clerk, dana, [ANN, BOB], calls(made("a", ANN)), a_plan(EVE, BOB, id="next"),
            calls(made("e", EVE)), calls(made("b", BOB)), says("done"),
        )  # fmt: skip
        [second] = clerk.open(run)
        clerk.decide(second, dana)
        run = clerk.drive(run)
        assert (run.state, refunds(), len(effects_of("label"))) == ("succeeded", ["ann", "bob"], 1)
        by = {clerk.execution(run, each).allowed_by for each in "eb"}
        assert (clerk.execution(run, "a").allowed_by, by) == (
            f"plan:{first.reference}", {f"plan:{second.reference}"},
        )  # fmt: skip

    def test_goes_no_further_when_one_of_its_calls_was_taken_back(self, clerk, dana, monkeypatch):
        monkeypatch.setattr(plan_use, "taken_back", set)
        run, _ = approved_plan(clerk, dana, [ANN, BOB], calls(made("a", ANN)), calls(made("b", BOB)))
        assert (run.waiting_for, refunds()) == ("approval", ["ann"])

    def test_waits_while_a_kill_switch_stops_the_agent(self, clerk, dana, ada):
        stop = meanwhile("stop", lambda: actions.engage_switch("agent", "clerk", "Look first.", ada))
        run, _ = approved_plan(clerk, dana, [ANN, BOB], calls(call("l", "look_away", name="stop"), made("a", ANN)))
        assert stop
        assert (run.waiting_for, refunds()) == ("switch", [])


class TestTheTable:
    def row(self, clerk, dana) -> PlannedCall:
        _, approval = approved_plan(clerk, dana, [ANN, BOB])
        return approval.planned_calls.get(position=1)

    def test_lets_an_execution_use_one_planned_call(self, clerk, dana):
        row = self.row(clerk, dana)
        other = row.approval.planned_calls.get(position=2)
        mine = clerk.execution(clerk.run(calls(call("x", "look_up", what="x")), says("done")), "x").pk
        with ledger.transaction():
            assert plans.use(row, mine)
            assert not plans.use(row, mine)
        with pytest.raises(IntegrityError), transaction.atomic():
            plans.use(other, mine)

    @pytest.mark.parametrize(
        "change",
        [
            {"position": 2},
            {"effect_class": "irreversible"},
            {"used_at": timezone.now()},
            {"ended_at": timezone.now()},
            {"ended_why": "Because."},
            {"action_digest": ""},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_refuses_what_makes_no_sense(self, clerk, dana, change):
        row = self.row(clerk, dana)
        with pytest.raises(IntegrityError), transaction.atomic():
            PlannedCall.objects.filter(pk=row.pk).update(**change)


def test_of_two_workers_at_a_planned_call_one_comes_too_late(clerk, dana):
    _, approval = approved_plan(clerk, dana, [ANN, BOB])
    row = approval.planned_calls.get(position=1)
    others = [clerk.execution(clerk.run(calls(call("x", "look_up", what=n)), says("done")), "x").pk for n in "ab"]

    def use(execution_id):
        with ledger.transaction():
            return plans.use(row, execution_id)

    for _ in range(few_tries()):
        PlannedCall.objects.filter(pk=row.pk).update(used_by=None, used_at=None)
        results = race(lambda: use(others[0]), lambda: use(others[1]))
        assert sorted(map(str, results)) == ["False", "True"]


def test_of_ending_a_plan_and_making_its_call_one_comes_first(clerk, dana, marco):
    for _ in range(few_tries() // 2):
        run = clerk.run(a_plan(ANN, BOB), calls(made("a", ANN)), says("done"))
        [approval] = clerk.open(run)
        clerk.decide(approval, dana)
        before = len(refunds())
        race(lambda: clerk.drive(run), lambda: actions.end_plan(approval.pk, "Stop.", marco))
        run.refresh_from_db()
        row = approval.planned_calls.filter(position=1).first()
        assert row is None or (row.used_at is None) != (len(refunds()) > before)


def test_an_agent_that_may_not_plan_pays_no_query_for_plans(clerk):
    clerk.agent.tools.remove(Tool.objects.get(name="propose_plan"))
    with CaptureQueriesContext(connection) as seen:
        clerk.run(calls(made("a", ANN)), says("done"))
    assert not [query for query in seen if "plannedcall" in query["sql"]]
