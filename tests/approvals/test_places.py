"""Places in lists: what is written is read again, everything else is refused, and each row is on one side of each."""

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

from approvals.models import Event
from approvals.places import Place

NOON = datetime(2026, 11, 20, 12, 0, 0, 7, tzinfo=UTC)
KEYS = [uuid.UUID(int=number) for number in range(3)]


def test_a_place_that_was_written_is_read_as_the_same_place() -> None:
    here = Place(NOON, KEYS[1], "created_at")
    assert Place.read(str(here), "created_at") == here


def test_a_place_is_written_in_one_way_whatever_its_time_zone() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert str(Place(elsewhere, KEYS[1])) == str(Place(NOON, KEYS[1]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "_",
        "x",
        "2026-11-20T12:00:00+00:00",
        "2026-11-20T12:00:00+00:00_x",
        f"2026-11-20T12:00:00_{KEYS[1]}",
        f"9999-12-31T23:59:59-23:00_{KEYS[1]}",
        f"0001-01-01T00:00:00+23:00_{KEYS[1]}",
    ],
)
def test_what_no_list_has_written_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Place.read(text)


@pytest.mark.django_db
def test_each_row_is_older_or_newer_or_here() -> None:
    times = [NOON - timedelta(seconds=1), NOON, NOON, NOON, NOON + timedelta(seconds=1)]
    keys = [KEYS[2], *KEYS, KEYS[0]]
    rows = [
        Event.objects.create(chain="t", seq=seq, at=at, pk=key if at == NOON else uuid.uuid4(), type="t", body="{}",
                             hash=str(seq))
        for seq, (at, key) in enumerate(zip(times, keys, strict=True), start=1)
    ]  # fmt: skip
    here = Place.of(rows[2])

    def among(condition: object) -> list[int]:
        return sorted(Event.objects.filter(condition, chain="t").values_list("seq", flat=True))

    assert (among(here.older), among(here.here_and_older), among(here.newer)) == ([1, 2], [1, 2, 3], [4, 5])
