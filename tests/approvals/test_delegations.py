import uuid
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.db import IntegrityError, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentapp import preferences
from approvals import decisions, delegations, entitlement, ledger, people, sending, standing
from approvals.channels.base import ChannelError
from approvals.decisions import Taken
from approvals.delegations import Scope
from approvals.models import Approval, Decision, Delegation, Notification, Risk
from approvals.policy import RISK_ORDER, Ruling
from approvals.standing import Refusal
from tests.conftest import make_user
from tests.rows import a_card, a_decision, a_request, consume, decide, events, read, take, undo, within_transaction

pytestmark = pytest.mark.django_db


@pytest.fixture
def finance(db) -> Group:
    return Group.objects.create(name="finance")


@pytest.fixture
def bea(roles, finance) -> User:
    return make_user("bea", "approver", "finance")


@pytest.fixture
def ada(roles) -> User:
    return make_user("ada", "approver")


def lend(lender: User, deputy: User, *groups: Group, days: float = 1, **scope) -> Delegation:
    now = timezone.now()
    chosen = Scope(groups=[group.pk for group in groups], **scope)
    lent = delegations.begin(lender, deputy, now - timedelta(minutes=1), now + timedelta(days=days), chosen)
    assert isinstance(lent, Delegation), lent
    return lent


def fresh(user: User) -> User:
    return User.objects.get(pk=user.pk)


def asked(finance: Group, **changes) -> Approval:
    return a_request(**{"groups": (finance.pk,), "risk": "medium"} | changes)


def why_not(user: User, approval: Approval) -> str:
    refused = standing.may_decide(fresh(user), approval)
    return refused.code if refused else ""


# --- What is delegated --------------------------------------------------------------------------


@pytest.mark.parametrize("lender", ["bea", "bea@shop.example"])
def test_who_was_lent_the_right_decides_for_its_lender(ada, bea, finance, lender):
    User.objects.filter(pk=bea.pk).update(username=lender)
    bea.refresh_from_db()
    approval = asked(finance)
    assert why_not(ada, approval) == "forbidden"
    lend(bea, ada, finance)
    approval = take(approval, ada)
    decision = approval.decisions.get()
    assert (decision.user, decision.on_behalf_of, decision.who) == (ada, bea, "ada for bea")
    assert approval.state == "approved"
    event = ledger.Event.objects.get(type="approval.approved")
    assert event.data["on_behalf_of"] == ledger.actor_of(bea) == f"user:{bea.pk}:{lender}"
    assert event.actor == ledger.actor_of(ada)


def test_where_somebody_may_decide_themself_they_decide_for_nobody(ada, bea, finance):
    ada.groups.add(finance)
    lend(bea, ada, finance)
    assert take(asked(finance), ada).decisions.get().on_behalf_of is None
    assert take(a_request(risk="medium"), ada).decisions.get().on_behalf_of is None  # asks everybody


def test_the_right_to_decide_itself_is_never_lent(bea, finance, roles):
    viewer = make_user("vic", "viewer")
    now = timezone.now()
    refused = delegations.begin(bea, viewer, now, now + timedelta(days=1), Scope([finance.pk]))
    assert isinstance(refused, Refusal)
    ada = make_user("ada", "approver")
    lend(bea, ada, finance)
    ada.groups.clear()
    assert why_not(ada, asked(finance)) == "forbidden"


@pytest.mark.parametrize(
    ("since", "until", "code"),
    [(0, -1, "invalid"), (0, 0, "invalid"), (0, 30.01, "too_long"), (0, 30, ""), (-40, -20, "")],
)
def test_it_ends_after_it_begins_and_within_thirty_days(ada, bea, finance, since, until, code):
    now = timezone.now()
    begun = delegations.begin(bea, ada, now + timedelta(days=since), now + timedelta(days=until), Scope([finance.pk]))
    assert (begun.code if isinstance(begun, Refusal) else "") == code


def test_nobody_lends_what_is_not_theirs(ada, bea, finance, roles):
    now, later = timezone.now(), timezone.now() + timedelta(days=1)
    legal = Group.objects.create(name="legal")
    for groups in ([legal.pk], [finance.pk, legal.pk], []):
        refused = delegations.begin(bea, ada, now, later, Scope(groups))
        assert isinstance(refused, Refusal), groups
        assert refused.code == "invalid"
    critical = delegations.begin(bea, ada, now, later, Scope([finance.pk], highest_risk="critical"))
    assert isinstance(critical, Refusal)
    himself = delegations.begin(bea, bea, now, later, Scope([finance.pk]))
    assert isinstance(himself, Refusal)
    assert himself.code == "may_not_decide"
    vic = make_user("vic", "viewer", "finance")
    assert isinstance(delegations.begin(vic, ada, now, later, Scope([finance.pk])), Refusal)


def test_what_was_lent_cannot_be_lent_on(ada, bea, finance, roles):
    cleo = make_user("cleo", "approver")
    lend(bea, ada, finance)
    now = timezone.now()
    refused = delegations.begin(ada, cleo, now, now + timedelta(days=1), Scope([finance.pk]))
    assert isinstance(refused, Refusal)
    # Not even by a row that was made directly.
    row = Delegation.objects.create(lender=ada, deputy=cleo, since=now, until=now + timedelta(days=1), created_at=now)
    row.groups.add(finance)
    assert why_not(cleo, asked(finance)) == "forbidden"


def test_the_database_refuses_what_no_delegation_may_be(ada, bea):
    now = timezone.now()
    good = {"lender": bea, "deputy": ada, "since": now, "until": now + timedelta(days=1), "created_at": now}
    for wrong in ({"deputy": bea}, {"until": now}, {"highest_risk": "critical"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Delegation.objects.create(**good | wrong)


# --- How long, and how far ----------------------------------------------------------------------


@given(
    begins=st.integers(-3, 3),
    lasts=st.integers(1, 5),
    groups=st.sets(st.sampled_from(["finance", "legal"]), min_size=1),
    tools=st.sets(st.sampled_from(["refund_order", "refund", "order"]), max_size=2),
    highest=st.sampled_from(delegations.RISKS),
    asks=st.sets(st.sampled_from(["finance", "legal", "sales"]), min_size=1),
    tool=st.sampled_from(["refund_order", "refund", "order"]),
    risk=st.sampled_from(RISK_ORDER),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_delegation_lends_its_scope_and_nothing_beyond(
    ada, bea, begins, lasts, groups, tools, highest, asks, tool, risk
):
    all_groups = {name: Group.objects.get_or_create(name=name)[0] for name in ("finance", "legal", "sales")}
    bea.groups.add(*all_groups.values())
    Delegation.objects.all().delete()
    Decision.objects.all().delete()
    Approval.objects.all().delete()
    since = timezone.now() + timedelta(days=begins, minutes=-1)
    lent = delegations.begin(
        bea, ada, since, since + timedelta(days=lasts),
        Scope([all_groups[name].pk for name in groups], tuple(sorted(tools)), highest),
    )  # fmt: skip
    assert isinstance(lent, Delegation)
    approval = a_request(groups=tuple(all_groups[name].pk for name in asks), tool=tool, risk=risk)
    within = (
        begins <= 0 < begins + lasts
        and bool(groups & asks)
        and (not tools or tool in tools)
        and RISK_ORDER.index(risk) <= RISK_ORDER.index(highest)
    )
    reader = fresh(ada)
    assert (standing.may_decide(reader, approval) is None) == within
    # Every other place that checks says the same.
    assert entitlement.visible(reader).filter(pk=approval.pk).exists() == within
    assert entitlement.deciders_of(approval).filter(pk=ada.pk).exists() == within
    card = a_card(groups=tuple(all_groups[name].pk for name in asks), tool=tool, risk=risk)
    assert (ada.pk in people._deputies(card)) == within


def ended(lent, bea):
    assert delegations.end(lent.pk, fresh(bea))


def over(lent, bea):
    Delegation.objects.filter(pk=lent.pk).update(until=timezone.now() - timedelta(seconds=1))


def lender_is_switched_off(lent, bea):
    User.objects.filter(pk=bea.pk).update(is_active=False)


def lender_lost_the_group(lent, bea):
    bea.groups.remove(lent.groups.get())


def lender_may_not_decide(lent, bea):
    bea.groups.remove(Group.objects.get(name="approver"))


def lender_took_the_run_over(lent, bea):
    for approval in Approval.objects.all():
        within_transaction(decisions.exclude, [approval.run_id], bea)


ENDINGS = [ended, over, lender_is_switched_off, lender_lost_the_group, lender_may_not_decide, lender_took_the_run_over]


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_ends_at_once(ada, bea, finance, ending):
    approval = asked(finance)
    lent = lend(bea, ada, finance)
    assert why_not(ada, approval) == ""
    ending(lent, bea)
    assert why_not(ada, read(approval)) != ""
    assert not isinstance(decide(approval, a_decision(read(approval), ada)), Taken)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_was_decided_by_a_right_that_has_ended_since_does_not_stand(ada, bea, finance, ending):
    approval = asked(finance)
    lent = lend(bea, ada, finance)
    approval = take(approval, ada)
    assert standing.deciders_still_allowed(approval)
    ending(lent, bea)
    assert not standing.deciders_still_allowed(read(approval))


def test_a_right_of_ones_own_does_not_make_up_for_a_lent_one_that_ended(ada, bea, finance):
    approval = asked(finance)
    lent = lend(bea, ada, finance)
    approval = take(approval, ada)
    ada.groups.add(finance)
    assert standing.deciders_still_allowed(approval)
    assert delegations.end(lent.pk, fresh(bea))
    assert not standing.deciders_still_allowed(approval)


def test_nor_a_lent_one_for_ones_own(ada, bea, finance):
    ada.groups.add(finance)
    approval = take(asked(finance), ada)
    lend(bea, ada, finance)
    ada.groups.remove(finance)
    assert why_not(ada, asked(finance)) == ""
    assert not standing.deciders_still_allowed(approval)


def test_stricter_rules_hold_for_what_was_lent_as_well(ada, bea, finance):
    approval = asked(finance)
    lend(bea, ada, finance, highest_risk="medium")
    approval = take(approval, ada)
    legal = Group.objects.create(name="legal")

    def ruling(group: Group, risk: str) -> Ruling:
        return Ruling("ask", "Refunds ask", groups=(group.pk,), risk=risk, allowed_decisions=("approve",))

    same = ruling(finance, "medium")
    assert standing.meets(approval, same)
    assert not standing.meets(approval, ruling(legal, "medium"))
    assert not standing.meets(approval, ruling(finance, "high"))
    # Its lender started it, and the current rules exclude the starter.
    Approval.objects.filter(pk=approval.pk).update(starter=bea, starter_excluded=False)
    assert not standing.meets(read(approval), same)


# --- Separation of duties -----------------------------------------------------------------------


def test_neither_the_deputy_nor_the_lender_may_have_started_the_run(ada, bea, finance):
    lend(bea, ada, finance)
    assert why_not(ada, asked(finance, starter_id=ada.pk)) == "starter"
    assert why_not(ada, asked(finance, starter_id=bea.pk)) == "lender_barred"
    assert why_not(ada, asked(finance, starter_id=bea.pk, starter_excluded=False)) == ""


def test_nor_have_taken_it_over_nor_have_made_the_arguments_at_high_risk(ada, bea, finance):
    lend(bea, ada, finance)
    assert why_not(ada, asked(finance, excluded=(ada.pk,))) == "took_over"
    assert why_not(ada, asked(finance, excluded=(bea.pk,))) == "lender_barred"
    assert why_not(ada, asked(finance, editor_id=bea.pk, risk="high")) == "lender_barred"
    approval = asked(finance, editor_id=ada.pk, risk="high")
    refused = decide(approval, a_decision(approval, ada))
    assert isinstance(refused, Refusal)
    assert refused.code == "editor"


def test_whose_right_the_arguments_were_made_in_does_not_approve_them_at_high_risk(ada, bea, finance, roles):
    """A deputy and their lender count as one person, also on the request that replaces the one they changed."""
    made = {"editor_id": ada.pk, "editor_lender_id": bea.pk}
    approval = asked(finance, risk="high", **made)
    refused = decide(approval, a_decision(approval, bea))
    assert isinstance(refused, Refusal)
    assert refused.code == "editor"
    assert refused.message == "These were changed for you, so somebody else must approve them."
    cleo = make_user("cleo", "approver")
    lend(bea, cleo, finance)
    assert why_not(cleo, approval) == "lender_barred"
    assert take(approval, bea, "reject").state == "rejected"
    assert take(asked(finance, risk="medium", **made), bea).state == "approved"


@pytest.mark.parametrize("is_theirs", [False, True])
def test_what_they_have_approved_counts_for_nothing_where_the_risk_is_high_by_now(ada, bea, finance, is_theirs):
    lender = bea.pk if is_theirs else None
    approval = take(asked(finance, risk="medium", editor_id=ada.pk, editor_lender_id=lender), bea)
    high = Ruling("ask", "Refunds ask", groups=(finance.pk,), risk="high", allowed_decisions=("approve",))
    assert standing.meets(approval, high) is not is_theirs


def test_of_several_lenders_one_who_has_a_say_is_chosen(ada, bea, finance, roles):
    cleo = make_user("cleo", "approver", "finance")
    lend(bea, ada, finance)
    lend(cleo, ada, finance)
    assert take(asked(finance, starter_id=bea.pk), ada).decisions.get().on_behalf_of == cleo


def test_a_deputy_and_their_lender_are_one_person(ada, bea, finance, roles):
    approval = asked(finance, approvals_needed=2)
    cleo, dan = make_user("cleo", "approver", "finance"), make_user("dan", "approver")
    lend(bea, ada, finance)
    lend(bea, dan, finance)
    lend(cleo, ada, finance)
    approval = take(approval, ada)
    assert approval.state == "pending"
    for user, code in ((bea, "decided_for_you"), (ada, "decided_by_you"), (dan, "lender_barred")):
        refused = decide(approval, a_decision(read(approval), user))
        assert isinstance(refused, Refusal), user
        assert refused.code == code
    approval = take(approval, cleo)
    assert approval.state == "approved"
    assert standing.deciders_still_allowed(approval)


def test_nobody_decides_for_who_has_decided(ada, bea, finance):
    approval = asked(finance, approvals_needed=2)
    lend(bea, ada, finance)
    approval = take(approval, bea)
    assert why_not(ada, approval) == "lender_barred"
    assert not entitlement.deciders_of(approval).filter(pk=ada.pk).exists()
    assert isinstance(undo(approval, bea), Approval)
    assert why_not(ada, read(approval)) == ""


def test_who_was_decided_for_lends_nothing_more_to_the_request(ada, bea, finance, roles):
    """Ada has decided for Bea; the right Ada lends is her own, but she has already had her say."""
    finance_too = Group.objects.create(name="finance-too")
    ada.groups.add(finance_too)
    dan = make_user("dan", "approver")
    lend(bea, ada, finance)
    approval = a_request(groups=(finance.pk,), risk="medium", approvals_needed=3)
    approval = take(approval, ada)
    approval.groups.add(finance_too)
    lend(ada, dan, finance_too)
    assert why_not(dan, read(approval)) == "lender_barred"


def test_the_database_counts_a_right_once(ada, bea, finance):
    approval = asked(finance, approvals_needed=2)
    lend(bea, ada, finance)
    approval = take(approval, ada)
    given = Decision.objects.get()
    again = {
        field.name: getattr(given, field.name)
        for field in Decision._meta.concrete_fields
        if field.name not in ("id", "user", "on_behalf_of")
    }
    with pytest.raises(IntegrityError), transaction.atomic():
        Decision.objects.create(**again, user=bea)
    with pytest.raises(IntegrityError), transaction.atomic():
        Decision.objects.create(**again, user=make_user("dan"), on_behalf_of=bea)
    eve = make_user("eve")
    with pytest.raises(IntegrityError), transaction.atomic():
        Decision.objects.create(**again, user=eve, on_behalf_of=eve)


# --- Who hears of it ----------------------------------------------------------------------------


def test_lending_and_ending_are_in_the_record(ada, bea, finance):
    lent = lend(bea, ada, finance, tools=("refund_order",))
    assert delegations.end(lent.pk, fresh(bea))
    assert not delegations.end(lent.pk, fresh(bea))
    assert events(ledger.CONFIGURATION)[-2:] == ["delegation.begun", "delegation.ended"]
    begun = ledger.Event.objects.get(type="delegation.begun")
    assert begun.data | {"since": "", "until": "", "delegation": ""} == {
        "lender": "bea", "deputy": "ada", "groups": ["finance"], "tools": ["refund_order"],
        "highest_risk": "high", "since": "", "until": "", "delegation": "",
    }  # fmt: skip


def test_it_is_ended_by_its_lender_and_by_who_may_end_those_of_others(ada, bea, finance, roles):
    lent = lend(bea, ada, finance)
    assert not delegations.end(lent.pk, fresh(ada))
    assert not delegations.end(uuid.uuid4(), fresh(bea))
    boss = make_user("boss", "admin")
    assert delegations.end(lent.pk, boss)
    lent.refresh_from_db()
    assert lent.ended_by == boss


def test_deputies_are_told_that_a_request_waits(ada, bea, finance):
    lend(bea, ada, finance, highest_risk="low")
    for user in (ada, bea):
        User.objects.filter(pk=user.pk).update(email=f"{user.username}@shop.example")
        preferences.set_notifications(user, {"waiting": ["mail"]}, None, False)
    card = a_card(groups=(finance.pk,), risk="low")
    assert [sorted(asked) for asked in people.audience([card])] == [sorted([ada.pk, bea.pk])]
    assert people.audience([a_card(groups=(finance.pk,), risk="medium")]) == [{bea.pk: ["mail"]}]
    assert people.audience([a_card(groups=(finance.pk,), risk="low", starter_id=bea.pk)]) == [{}]
    within_transaction(decisions.request, [card], timezone.now(), audience=[{ada.pk: ["mail"]}])
    waiting = Notification.objects.select_related("approval", "user")
    sending.to_person(waiting.get())
    assert "You decide for bea" in mail.outbox[-1].body
    assert delegations.end(Delegation.objects.get().pk, fresh(bea))
    with pytest.raises(ChannelError):
        sending.to_person(waiting.get())


def test_what_was_decided_for_somebody_is_used_once_like_any_other(ada, bea, finance):
    lend(bea, ada, finance)
    approval = take(asked(finance), ada)
    assert consume(approval)
    assert not consume(approval)


def test_a_lent_right_is_to_decide_and_no_more(ada, bea, finance):
    lend(bea, ada, finance)
    approval = asked(finance)
    assert standing.may_decide(fresh(ada), approval) is None
    assert not standing.decides_themself(fresh(ada), approval)
    assert standing.decides_themself(fresh(bea), approval)
    assert Risk.CRITICAL not in delegations.RISKS
