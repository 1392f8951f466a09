"""Absences begun at the same moment: by one person twice, and by two who would cover for each other."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import absences
from approvals.models import Absence
from approvals.standing import Refusal
from tests.races import few_tries, race

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)


def test_of_an_absence_that_is_begun_twice_at_once_one_stands(dana: User, marco: User) -> None:
    now = timezone.now()
    for _ in range(few_tries()):
        begun = race(*[lambda: absences.begin(dana, marco, now, now + DAY)] * 2)
        assert [type(one) for one in begun] == [Absence, Absence], begun
        assert Absence.objects.count() == 1
        absences.end(dana)


def test_of_two_who_go_at_once_neither_is_left_with_the_others_queue(dana: User, marco: User) -> None:
    now = timezone.now()
    for _ in range(few_tries()):
        begun = race(
            lambda: absences.begin(dana, marco, now, now + DAY), lambda: absences.begin(marco, dana, now, now + DAY)
        )
        [refused] = [one for one in begun if isinstance(one, Refusal)]
        assert refused.code == "away_too"
        absences.end(dana)
        absences.end(marco)
