"""What approving a critical call takes: a person in the console, a word, a recent sign-in, and a second person."""

import pytest

from agentapp import actions, confirming
from agentapp.models import Run, Tool
from agentapp.tools import sentences
from approvals import ledger
from approvals.models import Approval, Rule
from tests import clerk_tools
from tests.conftest import call, calls, says

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def critical(clerk):
    """A pending payment that a rule calls critical."""
    Rule.objects.create(name="payments", tool="pay", verdict="ask", risk="critical", condition="args.amount > 1")

    def propose(**changes):
        Rule.objects.update(**changes)
        run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
        return clerk.open(run)[0]

    return propose


def word(approval):
    return approval.button or approval.tool


def approve(clerk, approval, user, **changes):
    return clerk.decide(approval, user, **{"typed": word(approval), "assurance": "password", **changes})


def test_it_takes_two_people_ten_seconds_and_says_what_the_rule_saw(clerk, critical, dana, marco):
    approval = critical()
    assert (approval.approvals_needed, approval.hold_seconds) == (2, 10)
    assert (approval.condition, approval.rule_values) == ("args.amount > 1", [{"name": "args.amount", "value": 5}])
    approve(clerk, approval, dana)
    approval.refresh_from_db()
    assert approval.state == Approval.State.PENDING
    approve(clerk, approval, marco)
    approval.refresh_from_db()
    assert approval.state == Approval.State.APPROVED
    assert {decision.assurance for decision in approval.decisions.all()} == {"password"}


def test_a_rule_raises_what_it_costs_and_never_lowers_it(critical, dana, marco):
    assert critical(hold_seconds=0, approvals_needed=1).hold_seconds == 10
    raised = critical(hold_seconds=30, approvals_needed=3)
    assert (raised.hold_seconds, raised.approvals_needed) == (30, 3)


def test_one_approver_alone_is_enough_where_there_is_no_other_and_the_record_says_so(clerk, critical, dana):
    approval = critical()
    assert (approval.approvals_needed, approval.hold_seconds) == (1, 10)
    approve(clerk, approval, dana)
    approval.refresh_from_db()
    assert approval.state == Approval.State.APPROVED
    events = ledger.Event.objects.filter(type__in=["approval.requested", "approval.approved"])
    assert [event.data["one_person"] for event in events] == [True, True]


def test_an_approver_who_came_later_is_asked_too_before_it_runs(clerk, critical, dana, request):
    approval = critical()
    approve(clerk, approval, dana)
    request.getfixturevalue("marco")
    Approval.objects.filter(pk=approval.pk).update(runs_at=approval.created_at)
    Run.objects.update(wake_at=approval.created_at)
    run = clerk.drive(Run.objects.get())
    assert clerk_tools.effects_of("pay") == []
    assert clerk.open(run)[0].approvals_needed == 2


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"typed": ""}, "confirmation"),
        ({"typed": "yes"}, "confirmation"),
        ({"assurance": ""}, "reauthenticate"),
        ({"via": "api cs_1234"}, "needs_person"),
        ({"via": "api cs_1234", "type": "reject", "message": "No."}, "needs_person"),
    ],
)
def test_without_one_of_these_nothing_is_decided(clerk, critical, dana, marco, how, code):
    approval = critical()
    with pytest.raises(actions.Refused) as refused:
        approve(clerk, approval, dana, **how)
    assert refused.value.code == code
    assert not approval.decisions.exists()


def test_blanks_and_letter_case_do_not_count_in_the_word(clerk, critical, dana, marco):
    approval = critical()
    approve(clerk, approval, dana, typed=f"  {word(approval).upper()} ")
    assert approval.decisions.count() == 1


def test_the_word_is_that_of_what_would_run(clerk, critical, dana, marco):
    approval = critical()
    edited = {"type": "edit", "arguments_text": '{"account":"ana","amount":3}'}
    with pytest.raises(actions.Refused, match=r"Type \$3\.00"):
        approve(clerk, approval, dana, **edited)
    approve(clerk, approval, dana, typed="$3.00", **edited)
    assert approval.decisions.count() == 1


def test_the_word_is_the_target_where_the_tool_names_one(clerk, critical, dana, marco):
    Tool.objects.filter(name="pay").update(confirm_template="{account}")
    approval = critical()
    with pytest.raises(actions.Refused, match="Type ana to approve"):
        approve(clerk, approval, dana)
    approve(clerk, approval, dana, typed="Ana")
    assert approval.decisions.count() == 1


@pytest.mark.parametrize("account", ["", " ", "\u200b", "a" * 61, None])
def test_a_target_that_nobody_could_type_is_not_asked_for(account):
    tool = Tool(name="pay", confirm_template="{account}")
    assert sentences.target(tool, {"account": account}, {}) == ""


def test_neither_a_masked_target_nor_one_of_a_later_contract_is_asked_for(clerk, critical):
    approval, tool = critical(), Tool.objects.get(name="pay")
    tool.confirm_template = "{account}"
    assert confirming.word_of(approval, tool, {"account": "ana"}, "$5.00") == "ana"
    approval.secret_fields = ["account"]
    assert confirming.word_of(approval, tool, {"account": "ana"}, "$5.00") == "$5.00"
    approval.secret_fields, tool.version = [], "later"
    assert confirming.word_of(approval, tool, {"account": "ana"}, "$5.00") == "$5.00"
    assert confirming.word_of(approval, None, {"account": "ana"}, "") == "pay"


def test_a_rejection_costs_no_more_than_words(clerk, critical, dana, marco):
    approval = critical()
    clerk.decide(approval, dana, "reject", message="No.")
    approval.refresh_from_db()
    assert approval.state == Approval.State.REJECTED
