import gc
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction

from approvals.streaming import streamed


class Enough(Exception):
    """Raised in the middle of reading."""


@pytest.mark.django_db
def test_what_an_exception_leaves_unread_ends_no_later_transaction() -> None:
    User.objects.bulk_create(User(username=f"user-{number}") for number in range(20))
    kept: list[BaseException] = []
    with transaction.atomic():
        try:
            with streamed(User.objects.all()) as users:
                next(users)
                raise Enough
        except Enough as enough:
            kept.append(enough)  # and with it every frame it came through
    with transaction.atomic():
        User.objects.create(username="later")
        kept.clear()
        gc.collect()
        assert User.objects.filter(username="later").exists()
    assert connection.is_usable()


@pytest.mark.django_db
def test_every_row_is_read() -> None:
    User.objects.bulk_create(User(username=f"user-{number}") for number in range(20))
    with streamed(User.objects.order_by("pk").values_list("username", flat=True)) as names:
        assert list(names) == [f"user-{number}" for number in range(20)]


def test_nothing_else_leaves_a_cursor_open() -> None:
    """A `QuerySet` generator that is not read to its end leaves its cursor to the garbage collector."""
    root = Path(settings.BASE_DIR)
    sources = [path for app in ("agentapp", "approvals") for path in (root / app).rglob("*.py")]
    opening = {
        path.relative_to(root).as_posix()
        for path in sources
        if ".iterator(" in path.read_text() and path.parent.name != "migrations"
    }
    assert opening == {"approvals/streaming.py"}
