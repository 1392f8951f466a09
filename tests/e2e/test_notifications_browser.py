"""Settings, Notifications, in a browser: three ways, at every width, in both schemes, and without JavaScript."""

from collections.abc import Callable
from datetime import time

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp import preferences
from approvals.models import Channel
from tests.e2e.looks import look

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]


@pytest.fixture
def chat(transactional_db: None) -> Channel:
    return Channel.objects.create(name="people", kind="slack", config={"credential": "SLACK"}, personal=True)


@pytest.mark.parametrize("size", [(1440, 900), (390, 844), (320, 640)], ids=lambda size: str(size[0]))
def test_the_page_is_accessible_with_all_it_offers(
    browse: Browse, complaints: list[str], chat: Channel, dana: User, size: tuple[int, int]
) -> None:
    reach = preferences.Reach("U0123DANA", "daily", time(8, 30), True)
    preferences.set_notifications(dana, {"waiting": ["mail", "chat"]}, (time(22), time(7)), False, "medium", reach)
    page = browse(dana, "/settings/notifications/", *size)
    wrong: dict[str, list[str]] = {}
    expect(page.get_by_role("checkbox", name="A request waits for my team, by chat")).to_be_checked()

    page.get_by_role("button", name="Send a test").click()
    expect(page.locator("[data-tested]")).to_contain_text("Chat: not sent. CREDENTIAL_SLACK is not set here")

    look(page, "sent", wrong)
    assert wrong == {}
    assert complaints == []


def test_it_is_kept_without_script(browse: Browse, chat: Channel, dana: User) -> None:
    page = browse(dana, "/settings/notifications/", java_script_enabled=False)
    page.get_by_role("checkbox", name="A request was handed to me, by chat").check()
    page.get_by_label("My name in chat (people)").fill("U0123DANA")
    page.get_by_label("Mail about requests that wait for my team").select_option("daily")
    page.get_by_label("Once a day at").fill("08:30")
    page.get_by_label("Also tell me").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").filter(has_text="Saved")).to_be_visible()

    one = preferences.manners([dana.pk])[dana.pk]
    assert one.ways("handed") == {"mail", "chat"}
    assert (one.chat_name, one.rhythm, one.rhythm_at, one.follow_ups) == ("U0123DANA", "daily", time(8, 30), True)
