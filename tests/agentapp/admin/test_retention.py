"""The admin shows what retention would delete, and looking deletes nothing."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from agentapp import retention
from agentapp.models import Run
from approvals.models import Event
from tests.conftest import Clerk, call, calls, says

PATH = "/admin/agentapp/erasure/retention/"
pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


def shown(page: Client) -> str:
    response = page.get(PATH)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_what_would_go_is_counted_per_kind_and_stays(page: Client, clerk: Clerk, settings: Any) -> None:
    settings.RETENTION_DAYS = {"content": 30, "notifications": 1, "evals": 0}
    old = [clerk.run(calls(call("l", "look_up", what="shelf")), says("Done.")) for _ in range(2)]
    clerk.run(says("Done."))
    Run.objects.filter(pk__in=[run.pk for run in old]).update(finished_at=timezone.now() - timedelta(days=31))
    before = Event.objects.count()
    text = shown(page)

    [content, notifications] = retention.preview()
    assert (content.counts["runs"], content.counts["calls"]) == (2, 2)
    for number, name in ((number, name) for name, number in content.counts.items()):
        assert f"<li>{number} {name if number != 1 else name.removesuffix('s')}</li>" in text
    assert "Kept for 30 days (<code>RETENTION_CONTENT_DAYS</code>)" in text
    assert "Kept for 1 day (<code>RETENTION_NOTIFICATIONS_DAYS</code>)" in text
    assert notifications.is_nothing
    assert "UTC: nothing." in text
    assert "<code>RETENTION_EVALS_DAYS</code> is not set." in text
    assert Event.objects.count() == before
    assert not Run.objects.filter(erased_at__isnull=False).exists()


def test_the_moment_before_which_things_are_too_old_is_told_in_utc(page: Client, settings: Any) -> None:
    settings.RETENTION_DAYS = {"content": 3650, "notifications": 0, "evals": 0}
    settings.TIME_ZONE = "Europe/Berlin"
    text = shown(page)
    [told] = re.findall(r"Older than (\d+ \w+ \d{4}, \d\d:\d\d:\d\d)\.\d{3} UTC", text)
    moment = datetime.strptime(told, "%d %b %Y, %H:%M:%S").replace(tzinfo=UTC)
    assert abs(timezone.now() - timedelta(days=3650) - moment) < timedelta(minutes=1)


def test_nothing_but_to_read_is_there_and_the_list_leads_to_it(page: Client) -> None:
    text = shown(page)
    main = text[text.index('id="content-main"') : text.index("</main>")]
    assert "<form" not in main
    assert "<button" not in main
    assert f'href="{PATH}"' in page.get("/admin/agentapp/erasure/").content.decode()


def test_who_may_not_see_erasures_does_not_see_it(client: Client, mia: User) -> None:
    mia.is_staff = True
    mia.save()
    mia.user_permissions.set(Permission.objects.filter(codename="view_run"))
    client.force_login(mia)
    assert client.get(PATH).status_code == 403
