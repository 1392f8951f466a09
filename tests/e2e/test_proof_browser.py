"""The state of the chain in a real browser: intact, being checked, broken; its keys, and progress as it happens."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from playwright.sync_api import Page, expect

from approvals import append_only, ledger
from approvals.models import Event, Verification
from approvals.proof import signing_key, verifying
from tests.approvals.proof.exports import said
from tests.e2e.conftest import live
from tests.e2e.looks import look
from tests.e2e.test_audit_browser import SIZES, history

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
PATHS = {"/audit/": "trail", "/audit/proof/": "proof"}


def check_all() -> None:
    row = verifying.latest()
    assert row is not None
    while verifying.go_on(row.pk):
        pass


def break_one() -> Event:
    """Change an event directly, as the owner of the database can."""
    event = Event.objects.get(type="configuration.changed")
    append_only.remove(connection)
    Event.objects.filter(pk=event.pk).update(body=event.body.replace('"version":5', '"version":6'))
    append_only.install(connection)
    return event


def faults(page: Page, name: str) -> dict[str, list[str]]:
    """What is wrong with the pages that show the state of the chain, at every width."""
    wrong: dict[str, list[str]] = {}
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for path, what in PATHS.items():
            page.goto(path)
            look(page, f"{what} {name}", wrong)
    return wrong


def test_whether_it_is_intact_being_checked_or_broken_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, ada: User
) -> None:
    history(sam, dana, marco)
    page = browse(ada, "/audit/")
    wrong = faults(page, "unchecked")
    verifying.start(ada)
    wrong |= faults(page, "verifying")
    expect(page.locator("#chain")).to_contain_text("Checking the chain.")
    check_all()
    wrong |= faults(page, "intact")
    expect(page.locator("#chain")).to_contain_text("Chain intact.")
    event = break_one()
    verifying.start(ada)
    check_all()
    wrong |= faults(page, "broken")
    expect(page.get_by_role("alert")).to_contain_text(f"The ledger is broken at {event.chain}, event {event.seq}")
    expect(page.get_by_role("link", name="Show the event")).to_have_attribute("href", f"/audit/events/{event.pk}/")
    assert wrong == {}
    assert complaints == []


@pytest.mark.parametrize("path", PATHS)
def test_a_key_begins_to_check_and_the_page_says_how_far_it_is_and_when_it_is_over(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, mia: User, path: str
) -> None:
    history(sam, dana, marco)
    page = browse(mia, path)
    expect(page.locator("#chain")).to_contain_text("Not checked yet")
    page.keyboard.press("v")
    total = Event.objects.count()
    expect(page.locator("#chain")).to_contain_text(f"Checking the chain. 0 of {total} events")
    row = Verification.objects.get()
    assert (row.started_by, row.state) == (mia, "running")

    page.goto(path)
    page.evaluate("window.here = true")
    assert verifying.go_on(row.pk, seconds=0)
    expect(page.locator("#chain")).to_contain_text(f"Checking the chain. {total} of {total} events")
    check_all()
    expect(page.locator("#chain")).to_contain_text("Chain intact.")
    assert page.evaluate("window.here")  # the page has not been reloaded
    assert complaints == []


def test_the_list_of_checks_follows_one_under_way(
    browse: Browse, sam: User, dana: User, marco: User, mia: User
) -> None:
    history(sam, dana, marco)
    row = verifying.start(mia)
    page = browse(mia, "/audit/proof/")
    checks = page.locator("#checks tbody tr")
    expect(checks).to_contain_text("0 % done")
    assert verifying.go_on(row.pk, seconds=0)
    expect(checks).to_contain_text("100 % done")
    check_all()
    expect(checks).to_contain_text("Everything holds")


def test_a_key_offers_a_file_of_what_was_found_and_its_manifest_holds(
    browse: Browse, complaints: list[str], sam: User, dana: User, marco: User, mia: User, tmp_path: Path
) -> None:
    history(sam, dana, marco)
    page = live(browse(mia, "/audit/?q=did:decided"))
    page.keyboard.press("x")
    menu = page.locator("details.export[open] .menu-list")
    with page.expect_download() as taken:
        menu.get_by_role("button", name="JSON lines, for programs").click()
    file = tmp_path / "trail.jsonl"
    taken.value.save_as(file)
    *lines, manifest = map(json.loads, file.read_text().splitlines())
    assert sorted(json.loads(line["body"])["type"] for line in lines) == ["approval.approved", "approval.rejected"]
    assert (manifest["kind"], manifest["count"]) == ("manifest", 2)
    key = signing_key.public_key().key_id
    assert said(file, key)[0] == 0

    with page.expect_download() as taken:
        menu.get_by_role("button", name="CSV, for spreadsheets").click()
    taken.value.save_as(tmp_path / "trail.zip")
    zipfile.ZipFile(tmp_path / "trail.zip").extractall(tmp_path)
    assert said(tmp_path / "events.csv", key, "--manifest", str(tmp_path / "manifest.json"))[0] == 0
    assert Event.objects.filter(type="trail.exported").count() == 2
    assert complaints == []
    assert ledger.verify()[1] is None
