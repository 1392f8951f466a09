"""A script in what an agent has read runs in nobody's browser. Two defences see to it, and either is enough."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils.safestring import mark_safe
from playwright.sync_api import Page, expect

from agentapp.console import formats
from approvals.models import Approval
from tests.agentapp.console.conftest import EVIDENCE, make_waiting

pytestmark = pytest.mark.browser
SCRIPT = "document.documentElement.dataset.ran = 'yes'"
# The page has loaded when its images have, or have failed.
HOSTILE = f"""The kettle is broken.<img src="/nowhere.png" alt="" onerror="{SCRIPT}"><script>{SCRIPT}</script>"""


@pytest.fixture
def read(sam: User) -> Approval:
    """A request whose agent has read such a text."""
    return make_waiting(sam, evidence=[{**EVIDENCE[0], "body": HOSTILE}, *EVIDENCE[1:]])


@pytest.mark.parametrize("policy", [True, False], ids=["policy", "no policy"])
@pytest.mark.parametrize("escaping", [True, False], ids=["escaped", "not escaped"])
def test_it_runs_only_where_neither_is_there(
    browse: Callable[..., Page],
    dana: User,
    read: Approval,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    escaping: bool,
    policy: bool,
) -> None:
    if not policy:
        settings.SECURE_CSP = {}
    if not escaping:
        monkeypatch.setattr(formats, "visible", lambda text: mark_safe(str(text)))
    page = browse(dana, f"/approvals/{read.pk}/")

    expect(page.get_by_text("The kettle is broken.").first).to_be_visible()
    ran = page.evaluate("document.documentElement.dataset.ran")
    assert ran == (None if escaping or policy else "yes")
