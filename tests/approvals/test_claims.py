"""Claims on a request: first come, first served, for as long as the lease; handed over to people who may decide."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals import claims, decisions, entitlement, standing
from approvals.models import Absence, Approval, Claim, Event, Snooze
from approvals.standing import Refusal
from tests.conftest import make_user
from tests.rows import a_moment_ago, a_request, events, read, take, within_transaction

pytestmark = pytest.mark.django_db
LEASE = timedelta(minutes=10)


def claim(approval: Approval, user: User) -> Claim | Refusal:
    return within_transaction(claims.take, approval.pk, user, LEASE)


def hand(approval: Approval, by: User, to: User | Group, note: str = "") -> Claim | Refusal:
    return within_transaction(claims.hand_over, approval.pk, by, to, note)


def lapse(approval: Approval) -> None:
    """Let the lease expire a moment ago."""
    Claim.objects.filter(approval=approval).update(until=timezone.now() - timedelta(seconds=1))


def chain(approval: Approval) -> list[str]:
    return events(f"run:{approval.run_id}")


class TestClaiming:
    def test_the_first_has_it_and_the_second_is_told_who(self, dana: User, marco: User) -> None:
        approval = a_request()

        assert isinstance(claim(approval, dana), Claim)
        second = claim(approval, marco)

        assert isinstance(second, Refusal)
        assert second.message == "Dana Whitfield has claimed this. You may still decide."
        assert chain(approval) == ["approval.requested", "approval.claimed"]

    def test_a_claim_takes_no_right_from_others(self, dana: User, marco: User) -> None:
        approval = a_request()
        claim(approval, dana)

        assert take(approval, marco).state == Approval.State.APPROVED

    def test_when_the_lease_has_run_out_the_next_has_it(self, dana: User, marco: User) -> None:
        approval = a_request()
        claim(approval, dana)
        lapse(approval)

        assert claims.of(approval.pk) is None
        taken = claim(approval, marco)

        assert isinstance(taken, Claim)
        assert taken.user == marco
        assert Claim.objects.count() == 1

    def test_claiming_again_renews_without_an_event(self, dana: User) -> None:
        approval = a_request()
        claim(approval, dana)
        Claim.objects.update(until=timezone.now() + timedelta(seconds=30))

        claim(approval, dana)

        assert Claim.objects.get().until > timezone.now() + timedelta(minutes=9)  # type: ignore[operator]
        assert chain(approval) == ["approval.requested", "approval.claimed"]

    def test_a_lease_that_ran_out_is_not_renewed(self, dana: User) -> None:
        approval = a_request()
        claim(approval, dana)
        lapse(approval)

        assert not claims.renew(approval.pk, dana, LEASE)

    def test_nobody_renews_what_another_holds(self, dana: User, marco: User) -> None:
        approval = a_request()
        claim(approval, dana)

        assert not claims.renew(approval.pk, marco, LEASE)

    def test_who_may_not_decide_may_not_claim(self, sam: User, otto: User) -> None:
        approval = a_request(starter_id=sam.pk)
        both = make_user("Lou Both", "approver", "operator")
        own = a_request(starter_id=both.pk)

        assert isinstance(claim(approval, otto), Refusal)
        assert isinstance(claim(own, both), Refusal)
        assert not Claim.objects.exists()

    def test_a_decided_request_loses_its_claim(self, dana: User, marco: User) -> None:
        approval = a_request(hold_seconds=0)
        claim(approval, dana)

        take(approval, marco)

        assert claims.of(approval.pk) is None
        assert isinstance(claim(approval, dana), Refusal)
        assert claims.forget_ended(100) == 1
        assert not Claim.objects.exists()

    def test_an_expired_request_cannot_be_claimed(self, dana: User) -> None:
        assert isinstance(claim(a_moment_ago(a_request(), "expires_at"), dana), Refusal)

    def test_a_request_with_a_question_still_can(self, dana: User) -> None:
        approval = a_request()
        Approval.objects.filter(pk=approval.pk).update(state=Approval.State.ASKED)

        assert isinstance(claim(approval, dana), Claim)

    def test_releasing_gives_it_back_and_is_in_the_record(self, dana: User, marco: User) -> None:
        approval = a_request()
        claim(approval, dana)

        assert isinstance(within_transaction(claims.release, approval.pk, marco), Refusal)
        assert within_transaction(claims.release, approval.pk, dana) is None

        assert claims.of(approval.pk) is None
        assert chain(approval)[-1] == "approval.released"


class TestHandingOver:
    def test_a_person_who_may_decide_gets_it_and_keeps_it(self, dana: User, marco: User) -> None:
        approval = a_request()
        claim(approval, dana)

        handed = hand(approval, dana, marco, "You know the customer.")

        assert isinstance(handed, Claim)
        assert (handed.user, handed.handed_by, handed.until) == (marco, dana, None)
        assert handed.note == "You know the customer."
        assert chain(approval)[-1] == "approval.handed_over"

    def test_the_ledger_names_them_even_by_a_mail_address(self, dana: User, marco: User) -> None:
        User.objects.filter(pk=marco.pk).update(username="marco@shop.example", first_name="", last_name="")
        marco.refresh_from_db()
        approval = a_request()
        claim(approval, dana)
        hand(approval, dana, marco, "For you.")
        assert Event.objects.get(type="approval.handed_over").data["to"] == "marco@shop.example"

    def test_a_person_who_may_not_decide_is_refused_with_a_word(self, dana: User, sam: User) -> None:
        approval = a_request()

        refused = hand(approval, dana, sam)

        assert isinstance(refused, Refusal)
        assert refused.message == "Sam Operator may not decide about this. Hand it to somebody who may."
        assert claims.of(approval.pk) is None

    def test_a_group_gets_it_and_one_of_them_takes_it(self, dana: User, marco: User) -> None:
        payments = Group.objects.create(name="Payments")
        marco.groups.add(payments)
        approval = a_request(groups=(payments.pk,))

        assert isinstance(hand(approval, dana, payments), Claim)
        assert isinstance(claim(approval, dana), Refusal)
        taken = claim(approval, marco)

        assert isinstance(taken, Claim)
        assert (taken.user, taken.group) == (marco, None)

    def test_a_group_in_which_nobody_may_decide_is_refused(self, dana: User, sam: User) -> None:
        payments = Group.objects.create(name="Payments")
        sam.groups.add(payments)
        approval = a_request(groups=(payments.pk,))

        assert isinstance(hand(approval, dana, payments), Refusal)
        assert isinstance(hand(a_request(), dana, Group.objects.get(name="operator")), Refusal)

    def test_what_another_holds_is_theirs_to_hand_over(self, dana: User, marco: User) -> None:
        priya = make_user("Priya Nair", "approver")
        approval = a_request()
        claim(approval, marco)

        assert isinstance(hand(approval, dana, priya), Refusal)
        assert isinstance(hand(approval, marco, priya), Claim)
        # The person who handed it over may hand it to somebody else.
        assert isinstance(hand(approval, marco, dana), Claim)

    def test_nobody_hands_to_themselves(self, dana: User) -> None:
        assert isinstance(hand(a_request(), dana, dana), Refusal)


class TestAbsence:
    def away(self, user: User, deputy: User) -> None:
        now = timezone.now()
        Absence.objects.create(user=user, deputy=deputy, since=now - timedelta(days=1), until=now + timedelta(days=1))

    def test_it_goes_to_the_deputy_of_who_is_away(self, dana: User, marco: User) -> None:
        priya = make_user("Priya Nair", "approver")
        self.away(marco, priya)
        approval = a_request()

        handed = hand(approval, dana, marco)

        assert isinstance(handed, Claim)
        assert handed.user == priya

    def test_a_deputy_who_may_not_decide_does_not_get_it(self, dana: User, marco: User, sam: User) -> None:
        self.away(marco, sam)
        approval = a_request()

        handed = hand(approval, dana, marco)

        assert isinstance(handed, Claim)
        assert handed.user == marco

    def test_who_is_back_gets_it_themselves(self, dana: User, marco: User) -> None:
        priya = make_user("Priya Nair", "approver")
        past = timezone.now() - timedelta(days=1)
        Absence.objects.create(user=marco, deputy=priya, since=past - timedelta(days=1), until=past)

        handed = hand(a_request(), dana, marco)

        assert isinstance(handed, Claim)
        assert handed.user == marco

    def test_it_does_not_come_back_to_who_handed_it(self, dana: User, marco: User) -> None:
        self.away(marco, dana)

        assert isinstance(hand(a_request(), dana, marco), Refusal)


class TestDeciders:
    def test_they_are_those_of_whom_a_decision_would_be_taken(self, dana: User, marco: User, mia: User) -> None:
        payments = Group.objects.create(name="Payments")
        marco.groups.add(payments)
        gone = make_user("Gone Person", "approver")
        User.objects.filter(pk=gone.pk).update(is_active=False)
        admin = make_user("Root Admin", "admin")
        User.objects.filter(pk=admin.pk).update(is_superuser=True)
        approvals = [
            a_request(),
            a_request(groups=(payments.pk,)),
            a_request(starter_id=dana.pk),
            a_request(starter_id=dana.pk, starter_excluded=False),
        ]

        for approval in approvals:
            everybody = {user for user in User.objects.all() if standing.may_decide(user, read(approval)) is None}
            assert set(entitlement.deciders_of(approval)) == everybody


class TestSnoozing:
    def snooze(self, approval: Approval, user: User, seconds: int) -> Snooze | Refusal:
        until = timezone.now() + timedelta(seconds=seconds)
        return within_transaction(claims.snooze, approval.pk, user, until)

    def test_once_per_person_and_without_an_event(self, dana: User, marco: User) -> None:
        approval = a_request(expires_seconds=3600)

        self.snooze(approval, dana, 600)
        self.snooze(approval, dana, 900)
        self.snooze(approval, marco, 600)

        assert Snooze.objects.count() == 2
        assert chain(approval) == ["approval.requested"]

    def test_never_past_the_time_it_is_due(self, dana: User) -> None:
        approval = a_request(expires_seconds=600)

        assert isinstance(self.snooze(approval, dana, 601), Refusal)
        assert isinstance(self.snooze(approval, dana, -1), Refusal)
        assert not Snooze.objects.exists()

    @pytest.mark.parametrize(("asleep", "still"), [(300, True), (1800, False)])
    def test_an_answer_brings_back_what_it_makes_due_sooner(
        self, dana: User, marco: User, asleep: int, still: bool
    ) -> None:
        approval = a_request(expires_seconds=600)
        question = within_transaction(decisions.ask, approval.pk, marco, "Why?", timedelta(hours=1))
        assert isinstance(self.snooze(approval, dana, asleep), Snooze)

        assert within_transaction(decisions.answer, question.pk, "Because.")

        assert Snooze.objects.exists() is still
        assert not Snooze.objects.filter(until__gte=read(approval).expires_at).exists()

    def test_waking_brings_it_back(self, dana: User, marco: User) -> None:
        approval = a_request(expires_seconds=3600)
        self.snooze(approval, dana, 600)

        assert not within_transaction(claims.wake, approval.pk, marco)
        assert within_transaction(claims.wake, approval.pk, dana)
        assert not Snooze.objects.exists()
