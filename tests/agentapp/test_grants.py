"""Calls that run because a person has allowed such calls for a while, and those that ask all the same."""

import threading
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions, grant_use
from agentapp.models import Tool
from agentapp.tools.base import LimitReached, ToolContext, tool
from approvals import delegations, granted, grants, ledger, sealed, standing
from approvals.delegations import Scope
from approvals.models import Approval, Delegation, Event, Grant, GrantLimit, Rule
from approvals.policy import Ruling
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.grants import a_grant, grant_from, let_grant
from tests.races import race, tries
from tests.teams import Team

PAY = call("p", "pay", account="ann", amount=5)
SEND = call("s", "send", to="ann")


def sent() -> int:
    return len(effects_of("send"))


class TestACallUnderAGrant:
    def test_runs_without_a_person_and_its_row_says_which_grant_allowed_it(self, clerk, dana):
        grant = a_grant(clerk, dana)
        run = clerk.run(calls(SEND), says("done"))
        execution = clerk.execution(run, "s")
        assert (run.state, sent()) == ("succeeded", 1)
        assert (execution.allowed_by, execution.grant) == (f"grant:{grant.reference}", grant)
        assert not Approval.objects.filter(run_id=run.pk).exists()

    def test_is_counted_in_the_grant_and_in_the_record_of_its_run(self, clerk, dana):
        grant = a_grant(clerk, dana)
        run = clerk.run(calls(SEND), says("done"))
        grant.refresh_from_db()
        used = Event.objects.get(chain=ledger.run_chain(run.pk), type="grant.used").data
        assert (grant.hits, grant.last_used_at is not None) == (1, True)
        assert (used["grant"], used["hits"]) == (str(grant.pk), 1)
        assert used["execution"] == str(clerk.execution(run, "s").pk)
        assert ledger.verify()[1] is None

    def test_asks_when_its_arguments_are_others(self, clerk, dana):
        a_grant(clerk, dana)
        run = clerk.run(calls(call("s", "send", to="bob")), says("done"))
        assert (run.waiting_for, sent()) == ("approval", 0)

    def test_asks_when_the_agent_is_another(self, clerk, dana):
        grant = a_grant(clerk, dana)
        Grant.objects.filter(pk=grant.pk).update(agent="somebody")
        assert clerk.run(calls(SEND), says("done")).waiting_for == "approval"

    def test_asks_when_the_tool_is_another(self, clerk, dana):
        a_grant(clerk, dana, "label", {"text": "red"})
        assert clerk.run(calls(call("s", "sync", text="red")), says("done")).waiting_for == "approval"

    def test_asks_when_the_grant_is_used_up(self, clerk, dana):
        a_grant(clerk, dana, max_hits="1")
        assert clerk.run(calls(SEND), says("done")).state == "succeeded"
        assert clerk.run(calls(SEND), says("done")).waiting_for == "approval"
        assert sent() == 1

    def test_of_two_in_one_step_the_last_hit_allows_one(self, clerk, dana):
        grant = a_grant(clerk, dana, "send", {"to": "ann"}, rules={"how": "any"}, max_hits="1")
        run = clerk.run(calls(SEND, call("t", "send", to="ann", how="well ")), says("done"))
        grant.refresh_from_db()
        assert (run.waiting_for, sent(), grant.hits) == ("approval", 1, 1)


class TestARuleAndAGrant:
    def test_a_rule_that_forbids_wins(self, clerk, dana):
        a_grant(clerk, dana)
        Rule.objects.create(name="no", tool="send", verdict="deny")
        run = clerk.run(calls(SEND), says("done"))
        assert (clerk.execution(run, "s").reason, sent()) == ("policy_denied", 0)

    @pytest.mark.parametrize(("allowed", "waits"), [(False, "approval"), (True, "")])
    def test_a_rule_that_asks_says_itself_whether_a_grant_may_answer(self, clerk, dana, allowed, waits):
        a_grant(clerk, dana)
        Rule.objects.create(name="ask", tool="send", verdict="ask", grants_allowed=allowed)
        assert clerk.run(calls(SEND), says("done")).waiting_for == waits

    def test_every_rule_that_asks_must_let_it(self, clerk, dana):
        a_grant(clerk, dana)
        Rule.objects.create(name="one", tool="send", verdict="ask", grants_allowed=True)
        Rule.objects.create(name="two", tool="send", verdict="ask")
        assert clerk.run(calls(SEND), says("done")).waiting_for == "approval"

    def test_a_condition_that_cannot_be_evaluated_is_for_people(self, clerk, dana):
        a_grant(clerk, dana)
        Rule.objects.create(name="one", tool="send", verdict="ask", condition="args.none > 1", grants_allowed=True)
        assert clerk.run(calls(SEND), says("done")).waiting_for == "approval"

    def test_a_tool_that_always_asks_always_asks(self, clerk, dana):
        a_grant(clerk, dana)
        Tool.objects.filter(name="send").update(approval_mode="always")
        assert clerk.run(calls(SEND), says("done")).waiting_for == "approval"

    def test_a_call_of_more_risk_asks(self, clerk, dana):
        a_grant(clerk, dana)
        Rule.objects.create(name="ask", tool="send", verdict="ask", grants_allowed=True, risk="high")
        assert clerk.run(calls(SEND), says("done")).waiting_for == "approval"

    def test_who_may_not_decide_by_the_rule_of_now_has_allowed_nothing_ahead(self, clerk, dana, roles):
        grant = a_grant(clerk, dana)
        rule = Rule.objects.create(name="ask", tool="send", verdict="ask", grants_allowed=True)
        rule.groups.add(roles["manager"])
        assert clerk.run(calls(SEND), says("done")).waiting_for == "approval"
        grant.refresh_from_db()
        assert grant.hits == 0

    @pytest.mark.parametrize(
        "values", [{"verdict": "allow"}, {"approvals_needed": 2}, {"risk": "critical"}, {"answered_by": "customer"}]
    )
    def test_the_database_refuses_grants_for_rules_that_ask_more_than_one_person(self, clerk, values):
        with pytest.raises(IntegrityError), transaction.atomic():
            Rule.objects.create(**{"name": "x", "tool": "send", "verdict": "ask", "grants_allowed": True, **values})


CHANGES = {
    "revoked": lambda grant, dana: actions.revoke_grant(grant.pk, "No more.", dana),
    "over": lambda grant, dana: Grant.objects.filter(pk=grant.pk).update(
        made_at=timezone.now() - timedelta(days=2), expires_at=timezone.now() - timedelta(days=1)
    ),
    "another class": lambda grant, dana: Tool.objects.filter(name="send").update(effect_class="irreversible"),
    "always": lambda grant, dana: Tool.objects.filter(name="send").update(approval_mode="always"),
    "used up": lambda grant, dana: Grant.objects.filter(pk=grant.pk).update(max_hits=1, hits=1),
    "its maker has left": lambda grant, dana: type(dana).objects.filter(pk=dana.pk).update(is_active=False),
    "its maker lost the right": lambda grant, dana: dana.user_permissions.clear(),
    "a rule asks": lambda grant, dana: Rule.objects.create(name="ask", tool="send", verdict="ask"),
    "another version": lambda grant, dana: Grant.objects.filter(pk=grant.pk).update(tool_version="of before"),
}


class TestWhatCameFromOutside:
    @pytest.fixture
    def told(self, clerk):
        """The clerk has read about 1000 in a mail from outside, and sends it there."""
        return calls(call("r", "read_mail")), calls(call("s", "send", to="1000"))

    def test_asks_where_the_grant_says_only_that_it_may_be_anything(self, clerk, dana, told):
        a_grant(clerk, dana, "send", {"to": "ann", "how": "well"}, rules={"to": "any"})
        assert clerk.run(*told, says("done")).waiting_for == "approval"
        assert sent() == 0

    def test_runs_where_the_grant_says_exactly_what_it_is(self, clerk, dana, told):
        a_grant(clerk, dana, "send", {"to": "1000"})
        assert (clerk.run(*told, says("done")).state, sent()) == ("succeeded", 1)

    def test_runs_where_a_person_said_it_too(self, clerk, dana, told):
        a_grant(clerk, dana, "send", {"to": "ann", "how": "well"}, rules={"to": "any"})
        assert clerk.run(*told, says("done"), input="Send it to 1000.").state == "succeeded"

    def test_asks_when_it_is_about_to_run_as_well(self, clerk, dana, marco, told):
        a_grant(clerk, dana, "send", {"to": "ann", "how": "well"}, rules={"to": "any"})
        run = clerk.run(told[0], calls(PAY, call("s", "send", to="1000")), says("done"), input="Send it to 1000.")
        assert clerk.execution(run, "s").allowed_by
        type(run).objects.filter(pk=run.pk).update(input="Do it.")
        clerk.decide(clerk.open(run)[0], marco)
        assert (clerk.drive(run).waiting_for, sent()) == ("approval", 0)

    def test_asks_where_another_agent_has_handed_it_on_as_well(self, clerk, dana, told):
        grant = a_grant(clerk, dana, "send", {"to": "ann", "how": "well"}, rules={"to": "any"})
        Grant.objects.filter(pk=grant.pk).update(agent="refunds")
        team = Team(clerk)
        team.may_ask("refunds", told[1], says("Sent."))
        team.run(told[0], calls(call("a", "ask_refunds", input="Please send it to 1000.")), says("done"))
        assert (sent(), Approval.objects.filter(tool="send", agent="refunds").count()) == (0, 1)


class TestBetweenProposalAndExecution:
    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
    def test_a_call_whose_grant_does_not_stand_any_more_asks(self, clerk, dana, marco, change):
        grant = a_grant(clerk, dana)
        run = clerk.run(calls(PAY, SEND), says("done"))
        assert clerk.execution(run, "s").allowed_by == f"grant:{grant.reference}"
        change(grant, let_grant(dana))
        clerk.decide(clerk.open(run)[0], marco)
        assert clerk.drive(run).waiting_for == "approval"
        [approval] = clerk.open(run)
        assert (approval.tool, sent()) == ("send", 0)
        assert clerk.execution(run, "s").allowed_by == ""

    def test_without_a_change_it_runs(self, clerk, dana, marco):
        a_grant(clerk, dana)
        run = clerk.run(calls(PAY, SEND), says("done"))
        clerk.decide(clerk.open(run)[0], marco)
        assert (clerk.drive(run).state, sent()) == ("succeeded", 1)

    def test_a_tool_that_changed_is_not_called(self, clerk, dana, marco):
        a_grant(clerk, dana)
        run = clerk.run(calls(PAY, SEND), says("done"))
        Tool.objects.filter(name="send").update(version="changed")
        clerk.decide(clerk.open(run)[0], marco)
        clerk.drive(run)
        assert (clerk.execution(run, "s").reason, sent()) == ("action_changed", 0)


class TestWhoseRuns:
    def test_a_run_that_its_maker_has_started_asks(self, clerk, dana):
        a_grant(clerk, dana)
        clerk.starter = dana
        run = clerk.run(calls(SEND), says("done"))
        assert (run.waiting_for, sent()) == ("approval", 0)

    def test_a_run_that_its_maker_has_taken_over_asks(self, clerk, dana, sam):
        grant = a_grant(clerk, dana)
        run = clerk.start(calls(SEND), says("done"))
        send = Tool.objects.get(name="send")
        asks = Ruling("ask", "A person decides.", risk="medium", grants_allowed=True)
        arguments = {"to": "ann", "how": "well"}
        run.takers = [dana.pk]
        assert not grant_use.find(_configuration(run), grant_use.wanted(run, send, arguments, asks))
        run.takers = [sam.pk]
        assert grant_use.find(_configuration(run), grant_use.wanted(run, send, arguments, asks)) == [grant]

    def test_who_started_the_run_makes_none_from_its_request(self, clerk, sam, dana):
        clerk.starter = dana
        Rule.objects.create(name="own", tool="send", verdict="ask", starter_excluded=False, grants_allowed=True)
        with pytest.raises(actions.Refused) as refused:
            a_grant(clerk, dana)
        assert (refused.value.code, Grant.objects.count()) == ("starter", 0)


def _configuration(run):
    from agentapp.toolset import read_configuration

    return read_configuration(run, 0)


class TestMaking:
    def test_a_right_that_was_lent_allows_nothing_ahead(self, clerk, dana, marco, roles):
        finance = Group.objects.create(name="finance")
        marco.groups.add(finance)
        Rule.objects.create(name="ask", tool="send", verdict="ask", grants_allowed=True).groups.add(finance)
        now = timezone.now()
        scope = Scope(groups=[finance.pk], highest_risk="high")
        lent = delegations.begin(marco, dana, now - timedelta(minutes=1), now + timedelta(days=1), scope)
        assert isinstance(lent, Delegation)
        [approval] = clerk.open(clerk.run(calls(SEND), says("done")))
        assert standing.may_decide(let_grant(dana), approval) is None
        with pytest.raises(actions.Refused) as refused:
            grant_from(approval, dana)
        assert (refused.value.code, Grant.objects.exists()) == ("forbidden", False)

    def test_it_needs_a_right_of_its_own(self, clerk, dana):
        [approval] = clerk.open(clerk.run(calls(SEND)))
        new = actions.NewGrant(rules={}, days="7", reason="x")
        with pytest.raises(actions.Refused) as refused:
            actions.make_grant(approval.pk, new, dana)
        assert refused.value.code == "forbidden"

    def test_it_needs_the_right_to_decide_this_request(self, clerk, mia):
        with pytest.raises(actions.Refused) as refused:
            a_grant(clerk, mia)
        assert (refused.value.code, Grant.objects.exists()) == ("forbidden", False)

    def test_what_cannot_be_taken_back_is_not_granted(self, clerk, dana):
        with pytest.raises(actions.Refused, match="undone or made good"):
            a_grant(clerk, dana, "pay", {"account": "ann", "amount": 5})

    @pytest.mark.parametrize(
        ("terms", "field"),
        [
            ({"days": "0"}, "days"), ({"days": "31"}, "days"), ({"days": "x"}, "days"), ({"days": ""}, "days"),
            ({"reason": "  "}, "reason"), ({"max_hits": "0"}, "max_hits"), ({"max_hits": "-1"}, "max_hits"),
            ({"rules": {"to": "any", "how": "any"}}, "constraints"), ({"rules": {"to": "like"}}, "to"),
            ({"rules": {"to": "at_most"}, "most": {"to": "x"}}, "to"), ({"sums": {"to": "-5"}}, "limit:to"),
            ({"counts": {"rows": "5"}}, "limits"), ({"sums": {"to": "0"}}, "limit:to"),
        ],
    )  # fmt: skip
    def test_terms_that_cannot_be_kept_are_refused(self, clerk, dana, terms, field):
        with pytest.raises(actions.Refused) as refused:
            a_grant(clerk, dana, **terms)
        assert (refused.value.field, Grant.objects.exists()) == (field, False)

    @pytest.mark.parametrize(
        "values", [{"approval_mode": "always"}, {"version": "changed"}, {"effect_class": "irreversible"}]
    )
    def test_a_tool_that_is_not_as_it_was_asked_about_is_not_granted(self, clerk, dana, values):
        [approval] = clerk.open(clerk.run(calls(SEND)))
        Tool.objects.filter(name="send").update(**values)
        with pytest.raises(actions.Refused) as refused:
            grant_from(approval, dana)
        assert refused.value.code == "not_grantable"

    def test_a_rejected_request_is_no_example(self, clerk, dana):
        [approval] = clerk.open(clerk.run(calls(SEND)))
        clerk.decide(approval, dana, "reject", message="No.")
        approval.refresh_from_db()
        with pytest.raises(actions.Refused) as refused:
            grant_from(approval, dana)
        assert refused.value.code == "not_grantable"

    def test_the_value_of_a_secret_is_nowhere_kept(self, clerk, dana):
        Tool.objects.filter(name="send").update(secret_fields=["to"])
        with pytest.raises(actions.Refused) as refused:
            a_grant(clerk, dana, "send", {"to": "hunter2"})
        assert refused.value.field == "to"
        grant = a_grant(clerk, dana, "send", {"to": "hunter2"}, rules={"to": "any"})
        assert "hunter2" not in str(grant.constraints)
        assert "hunter2" not in Event.objects.get(type="grant.made").body

    def test_it_decides_nothing_about_the_request_itself(self, clerk, dana):
        grant = a_grant(clerk, dana)
        assert grant.approval.state == "pending"

    def test_it_and_its_end_are_changes_of_the_configuration(self, clerk, dana, mia):
        before = ledger.height()
        grant = a_grant(clerk, dana)
        made = Event.objects.get(type="grant.made")
        assert (ledger.height(), made.chain) == (before + 1, "configuration")
        assert made.actor.startswith(f"user:{dana.pk}")
        ended = actions.revoke_grant(grant.pk, "Enough.", mia)
        assert (ended.revoked_by, ended.revoked_why) == (mia, "Enough.")
        assert sealed.opens("Enough.", grant.approval.salt, Event.objects.get(type="grant.revoked").data["why"])
        assert sealed.opens(grant.reason, grant.approval.salt, made.data["reason"])
        with pytest.raises(actions.Refused) as refused:
            actions.revoke_grant(grant.pk, "Again.", mia)
        assert refused.value.code == "already_revoked"

    def test_taking_it_back_needs_a_right_and_a_reason(self, clerk, dana, sam):
        grant = a_grant(clerk, dana)
        for user, why, code in ((sam, "x", "forbidden"), (dana, " ", "message_required")):
            with pytest.raises(actions.Refused) as refused:
                actions.revoke_grant(grant.pk, why, user)
            assert refused.value.code == code
        grant.refresh_from_db()
        assert grant.revoked_at is None


@pytest.mark.parametrize(
    "values",
    [
        {"effect_class": "irreversible"}, {"effect_class": "read"}, {"risk": "critical"}, {"hits": 3, "max_hits": 2},
        {"reason": ""}, {"tool": ""}, {"revoked_at": timezone.now()}, {"expires_at": timezone.now() - timedelta(9)},
    ],
)  # fmt: skip
def test_the_database_refuses_a_grant_that_says_too_much(clerk, dana, values):
    grant = a_grant(clerk, dana)
    with pytest.raises(IntegrityError), transaction.atomic():
        Grant.objects.filter(pk=grant.pk).update(**values)


def test_two_workers_at_the_last_hit_run_one_call(clerk, dana):
    grant = a_grant(clerk, dana, max_hits=str(tries()))
    execution = clerk.execution(clerk.run(calls(SEND), says("done")), "s")
    run, send = execution.run, Tool.objects.get(name="send")
    asks = Ruling("ask", "A person decides.", risk="medium", grants_allowed=True)
    wanted = grant_use.wanted(run, send, {"to": "ann", "how": "well"}, asks)

    def use():
        # Each holds the lock of a run of its own, here a chain of its own.
        with ledger.transaction():
            return grants.use(grant, wanted, run_id=execution.run_id, execution_id=execution.pk)

    for _ in range(3):
        Grant.objects.filter(pk=grant.pk).update(hits=tries() - 1)
        results = race(use, use)
        grant.refresh_from_db()
        assert (sorted(map(str, results)), grant.hits) == (["False", "True"], tries())


class TestHowSureOneMustBe:
    def test_a_grant_of_before_does_not_answer_where_people_show_who_they_are_by_now(self, clerk, dana, settings):
        """The rules say low; what came from outside raises it, and by now that level must be signed."""
        Rule.objects.create(name="ask", tool="send", verdict="ask", risk="low", grants_allowed=True)
        told = calls(call("r", "read_mail")), calls(call("s", "send", to="1000"))
        [approval] = clerk.open(clerk.run(*told, says("done")))
        assert approval.risk == "medium"
        grant_from(approval, dana)
        assert (clerk.run(*told, says("done")).state, sent()) == ("succeeded", 1)
        settings.STEP_UP = {"medium": "signed"}
        assert (clerk.run(*told, says("done")).waiting_for, sent()) == ("approval", 1)


class TestWhoChangedTheCall:
    """At high risk another person approves a change, and the same holds for allowing it ahead."""

    @pytest.fixture
    def changed(self, clerk, dana):
        """A request that dana has changed and nobody has approved."""
        rule = Rule.objects.create(name="sends", tool="send", verdict="ask", risk="high", grants_allowed=True)
        rule.groups.set(dana.groups.all())
        [approval] = clerk.open(clerk.run(calls(SEND), says("done")))
        clerk.decide(approval, dana, "edit", arguments_text='{"to": "eve"}')
        approval.refresh_from_db()
        assert (approval.state, approval.is_edited) == ("pending", True)
        return approval

    def test_allows_no_calls_like_it(self, clerk, dana, changed):
        with pytest.raises(actions.Refused) as refused:
            grant_from(changed, dana)
        assert (refused.value.code, Grant.objects.count()) == ("editor", 0)
        assert clerk.run(calls(call("s", "send", to="eve")), says("done")).waiting_for == "approval"

    def test_is_one_whom_somebody_else_can_follow(self, clerk, marco, changed):
        grant_from(changed, marco)
        assert clerk.run(calls(call("s", "send", to="eve")), says("done")).state == "succeeded"

    def test_is_who_changed_it_no_more_once_that_is_taken_back(self, clerk, dana, changed):
        actions.undo_decision(changed.pk, dana)
        changed.refresh_from_db()
        grant_from(changed, dana)
        assert clerk.run(calls(SEND), says("done")).state == "succeeded"


class TestLimits:
    @pytest.fixture
    def credit(self, offer):
        @tool(effect="compensable")
        def credit(to: str, amount: float) -> str:
            """Give somebody credit."""
            return f"{amount} to {to}"

        return offer(credit)["credit"]

    def test_what_calls_come_to_together_stays_within_the_limit(self, clerk, dana, credit):
        terms = {"rules": {"to": "is", "amount": "at_most"}, "most": {"amount": "60"}, "sums": {"amount": "100"}}
        grant = a_grant(clerk, dana, "credit", {"to": "ann", "amount": 5}, **terms)
        assert clerk.run(calls(call("c", "credit", to="ann", amount=60)), says("done")).state == "succeeded"
        assert clerk.run(calls(call("c", "credit", to="ann", amount=40.5)), says("done")).waiting_for == "approval"
        assert clerk.run(calls(call("c", "credit", to="ann", amount=40)), says("done")).state == "succeeded"
        assert clerk.run(calls(call("c", "credit", to="ann", amount=0)), says("done")).waiting_for == "approval"
        [limit] = grant.limits.all()
        assert (limit.used, limit.left) == (Decimal(100), 0)
        grant.refresh_from_db()
        assert grant.hits == 2

    def test_cents_add_up_to_the_last_one(self, clerk, dana, credit):
        terms = {"rules": {"to": "is", "amount": "at_most"}, "most": {"amount": "60"}, "sums": {"amount": "100"}}
        grant = a_grant(clerk, dana, "credit", {"to": "ann", "amount": 5}, **terms)
        for amount in (22.14, 21.76, 14.57, 7.72, 33.81):
            assert clerk.run(calls(call("c", "credit", to="ann", amount=amount)), says("done")).state == "succeeded"
        assert grant.limits.get().used == Decimal(100)

    def test_two_calls_of_one_step_share_what_is_left(self, clerk, dana, credit):
        terms = {"rules": {"to": "is", "amount": "at_most"}, "most": {"amount": "60"}, "sums": {"amount": "100"}}
        a_grant(clerk, dana, "credit", {"to": "ann", "amount": 5}, **terms)
        both = calls(call("c", "credit", to="ann", amount=60), call("d", "credit", to="ann", amount=59))
        run = clerk.run(both, says("done"))
        assert clerk.execution(run, "c").result_status == "ok"
        assert [approval.arguments["amount"] for approval in clerk.open(run)] == [59]

    def test_the_database_keeps_them(self, clerk, dana, credit):
        grant = a_grant(clerk, dana, "credit", {"to": "ann", "amount": 5}, sums={"amount": "100"})
        with pytest.raises(IntegrityError), transaction.atomic():
            GrantLimit.objects.filter(grant=grant).update(used=101)


class TestCounting:
    @pytest.fixture
    def told(self):
        return []

    @pytest.fixture
    def mail(self, offer, told):
        @tool(effect="compensable", limits={"recipients": 5})
        def mail_all(names: list[str], context: ToolContext) -> list[str]:
            """Write to many people."""
            for name in names:
                context.count("recipients")
                told.append(name)
            return names

        return offer(mail_all)["mail_all"]

    def test_a_call_ends_midway_at_its_tools_limit_and_says_what_was_done(self, clerk, dana, mail, told):
        run = clerk.run(calls(call("m", "mail_all", names=list("abcdefg"))), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        clerk.drive(run)
        execution = clerk.execution(run, "m")
        assert told == list("abcde")
        assert (execution.result_status, execution.reason) == ("fatal_error", "limit_reached")
        assert "5 recipients done" in execution.message
        assert execution.took_effect
        counted = Event.objects.get(type="tool_call.counted").data
        assert (counted["counted"], counted["stopped_at"]) == ({"recipients": 5}, "recipients")

    def test_calls_under_a_grant_share_its_limit_and_the_one_beyond_it_ends_midway(self, clerk, dana, mail, told):
        terms = {"rules": {"names": "any"}}
        grant = None
        with pytest.raises(actions.Refused):
            grant = a_grant(clerk, dana, "mail_all", {"names": ["x"]}, **terms)
        grant = a_grant(clerk, dana, "mail_all", {"names": list("abc")}, counts={"recipients": "4"})
        both = calls(call("m", "mail_all", names=list("abc"))), says("done")
        first, second, third = clerk.run(*both), clerk.run(*both), clerk.run(*both)
        assert clerk.execution(first, "m").result_status == "ok"
        stopped = clerk.execution(second, "m")
        assert (stopped.reason, stopped.took_effect) == ("limit_reached", True)
        assert "1 recipients done" in stopped.message
        assert third.waiting_for == "approval"
        assert (told, grant.limits.get().used) == (list("abca"), 4)

    def test_a_tool_may_say_itself_what_it_has_done(self, clerk, dana, offer):
        @tool(effect="compensable", limits={"rows": 2})
        def tidy(context: ToolContext) -> dict[str, str]:
            """Tidy rows up."""
            try:
                for _ in range(5):
                    context.count("rows")
            except LimitReached as reached:
                return {"done": str(reached.done["rows"])}
            return {"done": "all"}

        offer(tidy)
        run = clerk.run(calls(call("t", "tidy")), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        clerk.drive(run)
        assert clerk.execution(run, "t").result_text == '{"done": "2"}'
        assert Event.objects.get(type="tool_call.counted").data["stopped_at"] == "rows"


def test_no_grant_is_read_where_no_call_asks_that_a_grant_may_answer(clerk, dana):
    a_grant(clerk, dana)
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        clerk.run(calls(call("l", "label", text="red"), call("r", "look_up", what="x")), says("done"))
    assert not [query for query in queries if "approvals_grant" in query["sql"]]


def test_a_right_that_was_lent_makes_no_grant(clerk, dana, marco):
    """The delegated right ends sooner than the grant it would make."""
    payments = Group.objects.create(name="Payments")
    marco.groups.add(payments)
    rule = Rule.objects.create(name="sends", tool="send", verdict="ask", grants_allowed=True)
    rule.groups.add(payments)
    let_grant(dana)
    now = timezone.now()
    lent = delegations.begin(marco, dana, now - timedelta(minutes=1), now + timedelta(days=1), Scope([payments.pk]))
    run = clerk.run(calls(SEND), says("done"))
    [request] = clerk.open(run)
    with pytest.raises(actions.Refused, match="for somebody else"):
        grant_from(request, dana)
    assert clerk.decide(request, dana).decision.on_behalf_of == lent.lender
    assert not Grant.objects.exists()


def test_a_call_that_facts_make_riskier_than_the_request_was_asks(clerk, dana, offer):
    @tool(effect="reversible")
    def credit(to: str, amount: float) -> str:
        """Credit an account."""
        return to

    offer(credit)
    rule = Rule.objects.create(name="credits", tool="credit", verdict="allow")
    for number in range(10):
        clerk.run(calls(call("c", "credit", to="ann", amount=10 + number)), says("done"))
    rule.delete()

    terms = {"rules": {"to": "any", "amount": "at_most"}, "most": {"amount": "1000"}}
    asks = clerk.run(calls(call("a", "credit", to="ann", amount=5)), says("done"))
    [request] = clerk.open(asks)
    # Next to it, what the same call would be asked about without a grant.
    big = clerk.run(calls(call("b", "credit", to="mallory", amount=900)), says("done"))
    [weighty] = clerk.open(big)
    assert request.risk == "low" != weighty.risk  # medium at work, high at night
    grant_from(request, dana, **terms)
    run = clerk.run(calls(call("d", "credit", to="mallory", amount=901)), says("done"))
    assert run.waiting_for == "approval", clerk.execution(run, "d").allowed_by


@pytest.mark.postgresql
def test_what_a_tool_counts_while_another_call_begins_is_not_lost(clerk, dana, offer, monkeypatch):
    @tool(effect="compensable", limits={"recipients": 100})
    def mail_all(names: list[str], context: ToolContext) -> list[str]:
        """Write to many people."""
        for _ in names:
            context.count("recipients")
        return names

    offer(mail_all)
    grant = a_grant(clerk, dana, "mail_all", {"names": list("abc")}, counts={"recipients": "50"})
    covers, counted = granted.covers, []

    def slowly(current, wanted):
        """Another call's tool, which began before, counts while this one checks what is left."""
        if not counted:
            counted.append(True)

            def count():
                assert grants.count(grant.pk, "recipients", 40)
                connection.close()

            other = threading.Thread(target=count)
            other.start()
            other.join(20)
            assert not other.is_alive()
        return covers(current, wanted)

    monkeypatch.setattr(grants, "covers", slowly)
    run = clerk.run(calls(call("m", "mail_all", names=list("abc"))), says("done"))
    assert (run.state, counted) == ("succeeded", [True])
    assert GrantLimit.objects.get(grant=grant).used == Decimal(43)
