"""The actions on who looks after a request, as pages call them."""

import uuid
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User

from agentapp import actions, attention, sweep
from approvals import claims
from approvals.models import Approval, Claim
from tests import races
from tests.agentapp.console.conftest import make_waiting
from tests.rows import events, take


@pytest.mark.django_db
class TestVerbs:
    def test_a_request_one_cannot_see_is_not_there(self, sam: User, otto: User) -> None:
        approval = make_waiting(sam)

        for act in (
            lambda: actions.claim_request(approval.pk, otto),
            lambda: actions.release_claim(approval.pk, otto),
            lambda: actions.hand_over(approval.pk, otto, "", otto),
            lambda: actions.snooze_request(approval.pk, "15m", otto),
            lambda: actions.claim_request(uuid.uuid4(), otto),
        ):
            with pytest.raises(actions.Refused) as refused:
                act()
            assert refused.value.code in ("not_found", "forbidden")
        assert not Claim.objects.exists()

    def test_who_started_the_run_does_not_choose_who_judges_it(self, sam: User, dana: User) -> None:
        approval = make_waiting(sam)

        with pytest.raises(actions.Refused) as refused:
            actions.hand_over(approval.pk, dana, "", sam)

        assert refused.value.code == "forbidden"

    @pytest.mark.parametrize("part", ["starter", "excluded"])
    def test_nor_does_who_may_decide_but_had_a_hand_in_it(self, sam: User, dana: User, marco: User, part: str) -> None:
        approval = make_waiting(sam)
        changed = {"starter": dana} if part == "starter" else {"excluded": [dana.pk]}
        Approval.objects.filter(pk=approval.pk).update(**changed)

        with pytest.raises(actions.Refused) as refused:
            actions.hand_over(approval.pk, marco, "Approve, please.", dana)

        assert refused.value.code == "forbidden"
        assert not Claim.objects.exists()

    def test_a_manager_hands_what_they_may_not_decide(self, sam: User, dana: User, mia: User) -> None:
        approval = make_waiting(sam)

        assert actions.hand_over(approval.pk, dana, "Urgent.", mia).user == dana

    def test_the_lease_is_as_long_as_the_setting(self, sam: User, dana: User, settings: object) -> None:
        settings.CLAIM_SECONDS = 1  # type: ignore[attr-defined]
        approval = make_waiting(sam)

        claim = actions.claim_request(approval.pk, dana)

        assert (claim.until - claim.claimed_at).total_seconds() == 1  # type: ignore[operator]

    def test_the_record_says_who_claimed_renewed_nothing_and_gave_back(self, sam: User, dana: User) -> None:
        approval = make_waiting(sam)

        actions.claim_request(approval.pk, dana)
        assert actions.renew_claim(approval.pk, dana)
        actions.release_claim(approval.pk, dana)

        assert events(f"run:{approval.run_id}")[-2:] == ["approval.claimed", "approval.released"]

    def test_a_note_that_is_too_long_hands_nothing_over(self, sam: User, dana: User, marco: User) -> None:
        approval = make_waiting(sam)

        with pytest.raises(actions.Refused):
            actions.hand_over(approval.pk, marco, "x" * 301, dana)

        assert claims.of(approval.pk) is None

    def test_the_sweep_forgets_who_looked_after_what_has_ended(self, sam: User, dana: User) -> None:
        approval, other = make_waiting(sam, hold_seconds=0), make_waiting(sam)
        actions.claim_request(approval.pk, dana)
        actions.claim_request(other.pk, dana)
        take(approval, dana)

        sweep.sweep()

        assert [claim.approval for claim in Claim.objects.all()] == [other]


@pytest.mark.parametrize(
    ("preset", "ends"),
    [
        ("15m", datetime(2026, 11, 20, 23, 5)),
        ("1h", datetime(2026, 11, 20, 23, 50)),
        ("tomorrow", datetime(2026, 11, 21, 9, 0)),
    ],
)
def test_a_snooze_ends_by_the_clock_of_whoever_asked(preset: str, ends: datetime) -> None:
    berlin = ZoneInfo("Europe/Berlin")

    found = attention.snooze_ends(preset, datetime(2026, 11, 20, 22, 50, tzinfo=berlin))

    assert found == ends.replace(tzinfo=berlin)


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize(("preset", "minutes"), [("15m", 15), ("1h", 60)])
def test_a_snooze_is_as_long_in_the_night_that_has_an_hour_twice(preset: str, minutes: int, fold: int) -> None:
    now = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)

    found = attention.snooze_ends(preset, now)

    assert found.astimezone(UTC) - now.astimezone(UTC) == timedelta(minutes=minutes)


@pytest.mark.django_db(transaction=True)
def test_of_two_who_claim_at_once_one_has_it_and_the_other_is_told(sam: User, dana: User, marco: User) -> None:
    for _ in range(min(races.tries(), 30)):
        approval = make_waiting(sam)

        results = races.race(
            lambda key=approval.pk: actions.claim_request(key, User.objects.get(pk=dana.pk)),
            lambda key=approval.pk: actions.claim_request(key, User.objects.get(pk=marco.pk)),
        )

        claim = Claim.objects.get(approval=approval)
        refused = [result for result in results if isinstance(result, actions.Refused)]
        assert [error.code for error in refused] == ["claimed"], results
        assert [result.user for result in results if isinstance(result, Claim)] == [claim.user]
        assert events(f"run:{approval.run_id}").count("approval.claimed") == 1


@pytest.mark.django_db(transaction=True)
def test_a_claim_and_a_decision_at_once_do_not_harm_each_other(sam: User, dana: User, marco: User) -> None:
    for _ in range(min(races.tries(), 30)):
        approval = make_waiting(sam, hold_seconds=5)

        races.race(
            lambda key=approval.pk: actions.claim_request(key, User.objects.get(pk=dana.pk)),
            lambda row=approval: take_through_the_action(row, User.objects.get(pk=marco.pk)),
        )

        approval.refresh_from_db()
        assert approval.state == Approval.State.APPROVED
        assert claims.of(approval.pk) is None


def take_through_the_action(approval: Approval, user: User) -> None:
    new = actions.NewDecision(
        id=uuid.uuid4(), type="approve", version=approval.version, action_digest=approval.action_digest
    )
    actions.decide(approval.pk, new, user)
