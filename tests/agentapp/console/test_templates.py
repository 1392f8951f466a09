"""Every template, read as text: what the policy would block, what needs JavaScript, and how much of it a page loads."""

import gzip
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.conf import settings

from agentapp.static_files import is_ours, minified

TEMPLATES = sorted((settings.BASE_DIR / "templates").rglob("*.html"))
STATIC = settings.BASE_DIR / "static"
VENDOR = STATIC / "console" / "vendor"
# The frame's scripts, and all scripts of one page, compressed.
OWN = ("live", "dialog", "countdown", "keys", "palette")
MOST_OF_OUR_OWN, MOST_OF_A_PAGE = 8 * 1024, 25 * 1024
# What the strict Content-Security-Policy would block, or what would run text as script.
FORBIDDEN = {
    "a style attribute": re.compile(r"\sstyle\s*=", re.I),
    "an event attribute": re.compile(r"\son[a-z]+\s*=", re.I),
    "hx-on": re.compile(r"\bhx-on\b", re.I),
    "a trigger filter": re.compile(r"hx-trigger\s*=\s*(\"[^\"]*\[|'[^']*\[)", re.I),
    "js: or javascript:": re.compile(r"(\"|'|:)\s*(js|javascript):", re.I),
    "a script of its own": re.compile(r"<script(?![^>]*\ssrc=)", re.I),
    "a style of its own": re.compile(r"<style", re.I),
    "unescaped text": re.compile(r"\|\s*safe\b|\{%\s*autoescape off"),
}
SCRIPT = re.compile(r"<script src=\"\{% static '([^']+)' %\}\"")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_holds_what_the_policy_forbids(path: Path) -> None:
    text = path.read_text()

    assert [name for name, pattern in FORBIDDEN.items() if pattern.search(text)] == []


@pytest.mark.parametrize(
    ("markup", "fault"),
    [
        ('<p style="color:red">', "a style attribute"),
        ('<p class="a"\nSTYLE = "x">', "a style attribute"),
        ('<button onclick="x()">', "an event attribute"),
        ('<p hx-on:click="x()">', "hx-on"),
        ('<p hx-on::after-swap="x()">', "hx-on"),
        ('<p hx-get="/a/" hx-trigger="keyup[ctrlKey]">', "a trigger filter"),
        ("<p hx-trigger='click, load[x]'>", "a trigger filter"),
        ("<p hx-vals='js:{a: b()}'>", "js: or javascript:"),
        ('<a href="javascript:x()">', "js: or javascript:"),
        ("<script>x()</script>", "a script of its own"),
        ("<style>p{}</style>", "a style of its own"),
        ("{{ text|safe }}", "unescaped text"),
    ],
)
def test_the_check_of_the_policy_finds_what_it_forbids(markup: str, fault: str) -> None:
    assert [name for name, pattern in FORBIDDEN.items() if pattern.search(markup)] == [fault]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_form_that_posts_has_a_token(path: Path) -> None:
    text = path.read_text()

    for posts in re.findall(r"<form[^>]*method=\"post\".*?</form>", text, re.S):
        assert "csrf_token" in posts or "_card.html#hidden" in posts


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_whatever_htmx_posts_is_posted_without_script_too(path: Path) -> None:
    posts = _Posts(path.read_text())

    assert posts.only_with_script == []


@pytest.mark.parametrize(
    ("markup", "faults"),
    [
        ('<form hx-post="/a/"></form>', ["form"]),
        ('<form hx-post="/a/" method="post" action="/a/"></form>', []),
        ('<form method="post" action="/a/"><button hx-post="/b/">B</button></form>', ["button"]),
        ('<form method="post" action="/a/"><button type="submit" formaction="/b/" hx-post="/b/">B</button></form>', []),
        ('<div hx-post="/a/" hx-trigger="click">A</div>', ["div"]),
        (
            '<form method="post" action="/a/"><div hx-post="/p/" hx-include="#f" hx-trigger="change"></div></form>',
            [],
        ),
    ],
)
def test_the_check_of_forms_finds_what_needs_script(markup: str, faults: list[str]) -> None:
    assert _Posts(markup).only_with_script == faults


def test_the_vendored_script_is_the_one_that_was_checked() -> None:
    digest, name = (VENDOR / "SHA256SUMS").read_text().split()

    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest


def test_the_scripts_of_the_frame_stay_small() -> None:
    assert sum(_size(f"console/{name}.js") for name in OWN) <= MOST_OF_OUR_OWN


@pytest.mark.parametrize("path", [p for p in TEMPLATES if p.parent.name == "console"], ids=lambda path: path.name)
def test_no_page_loads_more_script_than_it_may(path: Path) -> None:
    sizes = {name: _size(name) for name in _scripts(path)}

    assert sum(sizes.values()) <= MOST_OF_A_PAGE, sizes


def test_the_count_of_scripts_sees_the_frame_and_the_page() -> None:
    assert "console/vendor/htmx-4.0.1+sse.min.js" in _scripts(settings.BASE_DIR / "templates/console/inbox.html")
    assert len(_scripts(settings.BASE_DIR / "templates/console/inbox.html")) > len(
        _scripts(settings.BASE_DIR / "templates/console/base.html")
    )


def _size(name: str) -> int:
    """What is sent of a script: collected, minified if it is ours, compressed on its own."""
    script = (STATIC / name).read_text()
    return len(gzip.compress((minified(script) if is_ours(name) else script).encode(), 9))


def _scripts(path: Path) -> set[str]:
    """The scripts of a page and of the frames around it."""
    text = path.read_text()
    frame = re.search(r"\{% extends \"([^\"]+)\" %\}", text)
    around = _scripts(settings.BASE_DIR / "templates" / frame[1]) if frame else set()
    return around | set(SCRIPT.findall(text))


class _Posts(HTMLParser):
    """Finds elements that post by htmx alone: a form needs a plain method and action, a button a formaction.

    What htmx posts to fetch a part of the page, as things change, is no act. It needs no form of its own if it is
    inside one that posts.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.only_with_script: list[str] = []
        self._posting = False
        self.feed(re.sub(r"\{%.*?%\}|\{#.*?#\}", "", text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        plain = given.get("method") == "post" and "action" in given
        if tag == "form":
            self._posting = plain
        if "hx-post" not in given:
            return
        button = tag == "button" and "formaction" in given
        part = tag not in ("form", "button") and self._posting and "change" in (given.get("hx-trigger") or "")
        if not (plain or button or part):
            self.only_with_script.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._posting = False
