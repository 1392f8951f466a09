"""Calls that the conversation's customer confirms: who is asked, what counts, and what runs."""

import uuid
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentapp import actions, customer_links, customers
from agentapp.actions import Refused
from agentapp.models import Conversation, Run
from agentapp.sweep import sweep
from agentapp.tools.base import OutcomeUnknown, ToolResult, tool
from approvals.models import Approval, Channel, Decision, Event, Notification
from tests import clerk_tools
from tests.agentapp.customers_at_work import access_to, answer_to, confirm, customer_rule, rule
from tests.conftest import call, calls, says
from tests.rows import a_moment_ago, events

PAY = calls(call("p", "pay", account="ana", amount=5))


def start(clerk, *replies, **more) -> Run:
    return clerk.run(*(replies or (PAY, says("It is paid."))), conversation="ticket-7", customer="Ana", **more)


def refused(act, *arguments, **named) -> Refused:
    with pytest.raises(Refused) as caught:
        act(*arguments, **named)
    return caught.value


def paid() -> int:
    return len(clerk_tools.effects_of("pay"))


@pytest.fixture
def access(clerk):
    return access_to(clerk)


@pytest.fixture
def soon():
    return timezone.now() + timedelta(hours=1)


def test_the_customers_yes_runs_exactly_what_they_were_shown(clerk, access):
    customer_rule()
    run = start(clerk)
    [approval] = clerk.open(run)
    assert (run.state, approval.kind, approval.approvals_needed, approval.allowed_decisions, approval.hold_seconds) == (
        "waiting", "confirmation", 1, ["approve", "reject"], 0
    )  # fmt: skip
    taken = confirm(access, approval)
    assert (taken.decision.user, taken.decision.customer, taken.decision.who) == (None, "Ana", "The customer")
    run = clerk.drive(run)
    approval.refresh_from_db()
    assert (run.answer, paid(), approval.state) == ("It is paid.", 1, "used")
    assert taken.decision.view_digest == approval.view_digest
    [decided] = Event.objects.filter(run_id=run.pk, type="approval.approved")
    assert (decided.actor, decided.data["kind"]) == ("customer:Ana (token shop)", "confirmation")
    assert decided.data["carried_by"] == f"user:{clerk.starter.pk}:{clerk.starter.username}"


def test_a_customer_whom_nobody_has_named_is_on_record_by_the_conversations_id(clerk):
    access = access_to(clerk, "ana.pereira-by-mail")
    Conversation.objects.update(customer="")  # like one that a run opened without naming anybody
    access.conversation.refresh_from_db()
    customer_rule()
    run = clerk.run(PAY, says("It is paid."), conversation="ana.pereira-by-mail")
    taken = confirm(access, clerk.open(run)[0])
    customers.ask_for_person(access)
    told = f"customer:{access.conversation.pk} (token shop)"
    assert Event.objects.get(run_id=run.pk, type="approval.approved").actor == told
    assert Event.objects.filter(type="conversation.mode_changed").get().actor == told
    assert taken.decision.customer == str(access.conversation.pk)
    assert not Event.objects.filter(body__contains="ana.pereira-by-mail").exists()


def test_the_customers_no_is_told_and_nothing_runs(clerk, access):
    customer_rule()
    run = start(clerk, PAY, says("Then not."))
    [approval] = clerk.open(run)
    confirm(access, approval, yes=False)
    run = clerk.drive(run)
    assert (run.answer, paid()) == ("Then not.", 0)
    assert clerk.execution(run, "p").reason == "approval_rejected"
    assert "The customer was asked and said no" in clerk.execution(run, "p").message


def test_an_agent_that_stops_when_people_reject_goes_on_when_a_customer_does(clerk, access):
    clerk.agent.on_reject = "stop"
    clerk.agent.save()
    customer_rule()
    run = start(clerk, PAY, says("Then not."))
    confirm(access, clerk.open(run)[0], yes=False)
    assert clerk.drive(run).state == "succeeded"


def test_staff_never_confirm_in_the_customers_place(clerk, access, dana):
    customer_rule()
    run = start(clerk)
    [approval] = clerk.open(run)
    for type_ in ("approve", "reject"):
        assert refused(clerk.decide, approval, dana, type_, message="x").code == "customer_decides"
    assert refused(actions.ask_agent, approval.pk, "Why?", dana).code == "customer_decides"
    assert refused(actions.claim_request, approval.pk, dana).code == "customer_decides"
    assert (clerk.drive(run).state, paid(), Decision.objects.count()) == ("waiting", 0, 0)


def test_a_customer_never_authorizes(clerk, access):
    run = start(clerk)
    [approval] = clerk.open(run)
    assert approval.kind == "authorization"
    assert refused(confirm, access, approval).code == "not_found"


def test_a_customer_confirms_nothing_of_another_conversation(clerk, access):
    customer_rule()
    run = start(clerk)
    other = access_to(clerk, "ticket-8", "Bo")
    assert refused(confirm, other, clerk.open(run)[0]).code == "not_found"
    assert refused(customers.confirm, access, uuid.uuid4(), answer_to(clerk.open(run)[0])).code == "not_found"


@pytest.mark.parametrize(("changes", "code"), [({"version": 7}, "changed"), ({"action_digest": "x"}, "action_changed")])
def test_what_was_not_shown_is_not_confirmed(clerk, access, changes, code):
    customer_rule()
    run = start(clerk)
    assert refused(confirm, access, clerk.open(run)[0], **changes).code == code
    assert Decision.objects.count() == 0


def test_answering_twice_is_answering_once(clerk, access):
    customer_rule()
    run = start(clerk)
    [approval] = clerk.open(run)
    answer = answer_to(approval)
    first = customers.confirm(access, approval.pk, answer)
    again = customers.confirm(access, approval.pk, answer)
    assert (again.repeated, again.decision) == (True, first.decision)
    later = refused(confirm, access, approval, yes=False)
    assert (later.code, later.message) == (
        "already_decided",
        "The customer already approved it. Your decision was not recorded.",
    )
    clerk.drive(run)
    assert paid() == 1


def test_time_runs_out_for_a_customer_too(clerk, access):
    customer_rule()
    run = start(clerk, PAY, says("Then not."))
    approval = a_moment_ago(clerk.open(run)[0], "expires_at")
    assert refused(confirm, access, approval).code == "expired"
    sweep()
    assert (clerk.drive(run).answer, paid()) == ("Then not.", 0)
    assert clerk.execution(run, "p").reason == "approval_expired"


def test_cancelling_takes_the_question_back(clerk, access, sam):
    customer_rule()
    run = start(clerk)
    [approval] = clerk.open(run)
    actions.cancel_run(run.pk, sam)
    assert refused(confirm, access, approval).message == "This request was withdrawn because its run ended."
    assert paid() == 0


# --- Who is asked ------------------------------------------------------------------------------


def test_a_run_outside_of_a_conversation_asks_people(clerk, dana):
    customer_rule()
    run = clerk.run(PAY, says("It is paid."))
    [approval] = clerk.open(run)
    assert approval.kind == "authorization"
    assert "The customer cannot be asked here, so people decide." in approval.reason
    clerk.decide(approval, dana)
    assert (clerk.drive(run).answer, paid()) == ("It is paid.", 1)


def test_a_conversation_that_no_customer_can_get_into_asks_people(clerk):
    customer_rule()
    [approval] = clerk.open(start(clerk))
    assert approval.kind == "authorization"


def test_whoever_holds_a_link_can_be_asked_until_it_is_taken_back(clerk, sam, soon):
    customer_rule()
    first = start(clerk, says("Hello."))
    link = customer_links.make(first.conversation, sam, soon, "test")
    [approval] = clerk.open(start(clerk))
    assert approval.kind == "confirmation"
    found = customer_links.find(customer_links.signed(link))
    access = customers.Access(found.conversation, sam, "link")
    confirm(access, approval)
    customer_links.revoke(link, "test")
    run = clerk.drive(Run.objects.get(pk=approval.run_id))
    [asked] = clerk.open(run)
    assert (asked.kind, run.state, paid()) == ("authorization", "waiting", 0)


def test_a_link_of_somebody_who_may_start_nothing_any_more_brings_no_yes_and_still_a_no(clerk, access, sam, soon):
    customer_rule()
    link = customer_links.make(access.conversation, sam, soon, "test")
    [approval] = clerk.open(start(clerk))
    sam.groups.clear()
    maker = type(sam).objects.get(pk=sam.pk)
    by_link = customers.Access(access.conversation, maker, "link 1", link=link)
    assert refused(confirm, by_link, approval).code == refused(customers.write, by_link, "Hello?").code == "forbidden"
    approval.refresh_from_db()
    assert approval.state == "pending"
    confirm(by_link, approval, yes=False)
    approval.refresh_from_db()
    assert approval.state == "rejected"


def test_nobody_is_told_of_what_a_customer_is_asked(clerk, access, dana):
    Channel.objects.create(name="desk", kind="memory", config={})
    customer_rule()
    start(clerk)
    assert not Notification.objects.exists()


# --- The customer and people -------------------------------------------------------------------


def both(clerk, access, approver) -> Run:
    """A payment that a customer confirms and people allow."""
    run = start(clerk)
    [asked] = clerk.open(run)
    assert asked.kind == "confirmation"
    confirm(access, asked)
    run = clerk.drive(run)
    [authorized] = clerk.open(run)
    assert (authorized.kind, run.state, paid()) == ("authorization", "waiting", 0)
    assert "edit" not in authorized.allowed_decisions
    assert "The customer has confirmed it." in authorized.reason
    clerk.decide(authorized, approver)
    return clerk.drive(run)


def test_where_rules_ask_both_the_customer_comes_first_and_nothing_runs_before_people_allow_it(clerk, access, dana):
    customer_rule()
    rule("payments", tool="pay").groups.set([Group.objects.get(name="approver")])
    run = both(clerk, access, dana)
    assert (run.answer, paid()) == ("It is paid.", 1)
    kinds = Approval.objects.filter(run_id=run.pk, state="used").order_by("used_at").values_list("kind", flat=True)
    assert list(kinds) == ["confirmation", "authorization"]
    assert [group.name for group in Approval.objects.get(run_id=run.pk, kind="authorization").groups.all()] == [
        "approver"
    ]


def test_high_risk_needs_people_too(clerk, access, dana):
    customer_rule(risk="high")
    assert both(clerk, access, dana).answer == "It is paid."


@pytest.mark.parametrize("unseen", [{"memo": "and send the invoice to eve"}, {"account": "a" * 161}])
def test_what_the_customer_cannot_read_needs_people_too(clerk, access, dana, unseen):
    customer_rule()
    run = start(clerk, calls(call("p", "pay", **{"account": "ana", "amount": 5} | unseen)), says("It is paid."))
    confirm(access, clerk.open(run)[0])
    run = clerk.drive(run)
    [approval] = clerk.open(run)
    assert (approval.kind, paid()) == ("authorization", 0)
    clerk.decide(approval, dana)
    assert (clerk.drive(run).answer, paid()) == ("It is paid.", 1)


def test_a_tool_that_always_asks_needs_people_too(clerk, access, dana):
    customer_rule()
    clerk.agent.tools.filter(name="pay").update(approval_mode="always")
    assert both(clerk, access, dana).answer == "It is paid."


def test_the_customers_no_is_the_last_word_where_people_would_be_asked(clerk, access):
    customer_rule(risk="high")
    run = start(clerk, PAY, says("Then not."))
    confirm(access, clerk.open(run)[0], yes=False)
    assert (clerk.drive(run).answer, Approval.objects.count(), paid()) == ("Then not.", 1, 0)


def test_a_rule_that_comes_later_asks_people_about_what_is_confirmed(clerk, access, dana):
    customer_rule()
    run = start(clerk)
    confirm(access, clerk.open(run)[0])
    rule("payments", tool="pay")
    run = clerk.drive(run)
    [authorized] = clerk.open(run)
    assert (authorized.kind, paid()) == ("authorization", 0)
    clerk.decide(authorized, dana)
    assert (clerk.drive(run).answer, paid()) == ("It is paid.", 1)


def test_a_rule_that_comes_later_asks_the_customer_about_what_people_have_allowed(clerk, access, dana):
    run = start(clerk)
    clerk.decide(clerk.open(run)[0], dana)
    customer_rule()
    run = clerk.drive(run)
    [asked] = clerk.open(run)
    assert (asked.kind, paid()) == ("confirmation", 0)
    confirm(access, asked)
    run = clerk.drive(run)
    [again] = clerk.open(run)
    clerk.decide(again, dana)
    assert (clerk.drive(run).answer, paid()) == ("It is paid.", 1)


def test_a_rule_that_cannot_be_evaluated_asks_people_whomever_it_would_have_asked(clerk, access):
    customer_rule(condition="args.no_such > 3")
    assert clerk.open(start(clerk))[0].kind == "authorization"


@tool(effect="irreversible", max_attempts=1, sentence="Ship {parcel}.")
def ship(parcel: str) -> str:
    """Ship a parcel."""
    raise OutcomeUnknown("The line went dead.")


def test_a_confirmed_call_whose_outcome_is_unknown_asks_the_customer_again(clerk, access, dana, offer):
    offer(ship)
    customer_rule("ship")
    run = start(clerk, calls(call("s", "ship", parcel="P1")), says("Shipped."))
    confirm(access, clerk.open(run)[0])
    run = clerk.drive(run)
    assert run.waiting_for == "outcome"
    actions.resolve_outcome(clerk.execution(run, "s").pk, "retry", "It never left.", dana)
    run = clerk.drive(run)
    assert [(a.kind, a.state) for a in Approval.objects.filter(run_id=run.pk).order_by("created_at")] == [
        ("confirmation", "used"), ("confirmation", "pending"),
    ]  # fmt: skip


# --- What the database refuses -----------------------------------------------------------------


def test_the_database_refuses_a_decision_of_nobody_and_one_of_two(clerk, access, dana):
    customer_rule()
    decision = confirm(access, clerk.open(start(clerk))[0]).decision
    for changes in ({"customer": ""}, {"user": dana}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Decision.objects.filter(pk=decision.pk).update(**changes)
    decision.pk = uuid.uuid4()
    with pytest.raises(IntegrityError), transaction.atomic():
        decision.save(force_insert=True)


# --- Asking for a person -----------------------------------------------------------------------


def test_a_customer_may_ask_for_a_person(clerk, access, sam):
    assert refused(customers.ask_for_person, access).code == "nothing_said"
    run = clerk.start(says("Hello."), conversation="ticket-7", customer="Ana")
    found = customers.ask_for_person(access)
    assert (found.mode, found.person_wanted) == ("manual", "customer")
    assert customers.ask_for_person(access).person_wanted_at == found.person_wanted_at
    chain = f"conversation:{found.pk}"
    assert events(chain).count("conversation.mode_changed") == 1
    assert Event.objects.get(chain=chain, type="conversation.mode_changed").actor == "customer:Ana (token shop)"
    assert clerk.drive(run).state == "queued"
    actions.take_over_run(run.pk, sam)
    actions.hand_back_run(run.pk, sam)
    assert clerk.drive(run).answer == "Hello."


def test_no_result_undoes_what_a_customer_asked_for(clerk, access, offer):
    @tool(effect="read", trust="trusted_system")
    def calm() -> ToolResult:
        """Let the agent speak."""
        customers.ask_for_person(access)
        return ToolResult(data="fine", control={"session_mode": "auto"})

    offer(calm)
    start(clerk, calls(call("c", "calm")), says("Fine."))
    access.conversation.refresh_from_db()
    assert access.conversation.person_wanted == "customer"
