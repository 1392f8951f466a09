"""Targets and steps in a real browser: in a row, on a page, and in the admin, at every width and in both schemes."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone
from playwright.sync_api import Page, expect

from approvals import decisions
from approvals.escalation import Step
from approvals.models import Approval, Rule
from tests.agentapp.console.conftest import make_waiting
from tests.e2e.conftest import live
from tests.e2e.looks import shot, violations
from tests.e2e.test_inbox_browser import too_wide
from tests.rows import within_transaction

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [1440, 390])
def test_targets_and_steps_can_be_read_everywhere(
    browse: Callable[..., Page], roles: dict[str, Group], sam: User, dana: User, ada: User, width: int
) -> None:
    steps = (Step(600, remind=True), Step(1800, "manager"))
    terms = {"groups": (roles["approver"].pk,), "escalation": steps, "target_seconds": 900}
    approval = make_waiting(sam, title="Refund $214.50 to Ana Pereira", **terms)
    make_waiting(sam, title="Refund $20.00 to Jo Park", expires_seconds=7200, **terms)
    past = timezone.now() - timedelta(minutes=12, seconds=3)
    Approval.objects.filter(pk=approval.pk).update(target_at=past, escalates_at=past)
    within_transaction(decisions.escalate, approval.pk)
    rule = Rule.objects.create(
        name="refunds", verdict="ask", target_seconds=900, escalation=[step.as_json() for step in steps]
    )

    page = browse(dana, "/inbox/", width=width)
    expect(page.locator("#queue")).to_contain_text(re.compile("1[2-5] min over target"))
    expect(page.locator("#queue")).to_contain_text("Target in 1")
    for path, words, name in (
        ("/inbox/", "over target", "inbox"),
        (f"/approvals/{approval.pk}/", "While nobody decides", "request"),
    ):
        page.goto(path)
        live(page)
        expect(page.locator("body")).to_contain_text(words)
        assert violations(page) == []
        assert not too_wide(page)
        shot(page, name)
    page.locator("#side").scroll_into_view_if_needed()
    page.locator("#side h2", has_text="While nobody decides").scroll_into_view_if_needed()
    shot(page, "side")
    admin = browse(ada, f"/admin/approvals/rule/{rule.pk}/change/", width=width)
    admin.locator(".steps").scroll_into_view_if_needed()
    assert violations(admin) == []
    shot(admin, "admin")
