"""How a page looks: what axe finds wrong with it in both colour schemes, whether it scrolls sideways, and pictures.

Pictures are taken only if SHOTS names a folder for them.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Page

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
# Pick the findings in the page: transferring all that axe reports takes twice as long as finding it.
# Nor need axe load media, and styles once more, for the one rule that is about sound: no page has any.
FOUND = """(more) => axe.run({resultTypes: ["violations"], preload: false, ...more}).then(({violations}) =>
    violations.map(({id, nodes}) => `${id}: ${JSON.stringify(nodes.slice(0, 3).map(({target}) => target))}`))"""
COLOURS = {"runOnly": ["color-contrast"]}
ALL_BUT_COLOURS = {"rules": {"color-contrast": {"enabled": False}}}
# A narrower window than this has the styles of a phone. Only what has no room can differ.
PHONE = 390
# A colour that is still changing is none of either scheme.
SETTLED = "document.getAnimations().filter((one) => one instanceof CSSTransition).forEach((one) => one.finish())"


def violations(page: Page) -> list[str]:
    """What axe finds wrong with a page as it stands, in the light scheme; and with its colours in the dark one."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    if width(page) < PHONE:
        return _found(page, ALL_BUT_COLOURS)
    found = _found(page, {})
    with dark(page):
        return found + [f"dark {one}" for one in _found(page, COLOURS)]


def _found(page: Page, more: dict[str, Any]) -> list[str]:
    # While content is being replaced, axe's findings about it mean nothing.
    page.wait_for_function("() => !window.heard?.asking")
    found: list[str] = page.evaluate(FOUND, more)
    return found


@contextmanager
def dark(page: Page) -> Iterator[None]:
    """The page as it stands, in the dark scheme."""
    page.emulate_media(color_scheme="dark")
    page.evaluate(SETTLED)
    yield
    page.emulate_media(color_scheme="light")
    page.evaluate(SETTLED)


def width(page: Page) -> int:
    assert page.viewport_size is not None
    return page.viewport_size["width"]


def sideways(page: Page) -> bool:
    """Whether the page as a whole scrolls sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def look(page: Page, name: str, wrong: dict[str, list[str]], **picture: Any) -> None:
    """Put what is wrong with a page as it stands into `wrong`, and take pictures of it."""
    shot(page, name, **picture)
    found = violations(page)
    if sideways(page):
        found.append("scrolls sideways")
    if found:
        wrong[f"{name} at {width(page)}"] = found


def shot(page: Page, name: str, **picture: Any) -> None:
    """Pictures of a page in both schemes. Those of test_chat_browser.py are called, say, chat-waiting-390-dark.png."""
    if folder := os.environ.get("SHOTS"):
        test = Path(os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]).stem
        of = test.removeprefix("test_").removesuffix("_browser")
        name = f"{of}-{re.sub(r'\W+', '-', name).strip('-')}-{width(page)}"
        page.screenshot(path=Path(folder) / f"{name}-light.png", **picture)
        with dark(page):
            page.screenshot(path=Path(folder) / f"{name}-dark.png", **picture)
