"""The trace of a run in a real browser: copying its id and downloading its file, on a desktop and on a phone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.agentapp.run_builder import told_run
from tests.e2e.looks import violations

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [pytest.param((1440, 900), id="1440"), pytest.param((390, 844), id="390")]


def opened(page: Page) -> None:
    page.locator(".runhead details.menu > summary:visible").click()


@pytest.mark.parametrize("size", SIZES)
def test_the_menu_of_the_trace_is_accessible(
    browse: Browse, complaints: list[str], sam: User, dana: User, size: tuple[int, int], tmp_path: Path
) -> None:
    page = browse(sam, f"/runs/{told_run(sam, dana, 3).id}/", *size)
    opened(page)
    box = page.get_by_role("link", name="Export OTel JSON").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size[0]
    assert violations(page) == []
    assert complaints == []


@pytest.mark.parametrize("size", SIZES)
def test_the_id_of_the_trace_is_copied(browse: Browse, sam: User, dana: User, size: tuple[int, int]) -> None:
    run = told_run(sam, dana, 3).run
    page = browse(sam, f"/runs/{run.pk}/", *size)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(page)
    page.get_by_role("button", name="Copy trace id").click()
    expect(page.locator("#spoken")).to_have_text("Trace id copied")
    assert page.evaluate("navigator.clipboard.readText()") == run.trace_id


def test_the_file_of_the_trace_is_taken_by_keys_alone(browse: Browse, sam: User, dana: User) -> None:
    run = told_run(sam, dana, 3).run
    page = browse(sam, f"/runs/{run.pk}/")
    page.locator("#run-trace > summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    with page.expect_download() as taken:
        page.keyboard.press("Enter")
    assert taken.value.suggested_filename == f"{run.reference}-otel.json"
    [resource] = json.loads(taken.value.path().read_text())["resourceSpans"]
    assert resource["scopeSpans"][0]["spans"][0]["traceId"] == run.trace_id
