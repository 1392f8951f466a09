"""Pages as a visitor finds them: from one to the next, a few of each kind."""

import html
import io
import re
import urllib.parse
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from django.test import Client
from django.urls import Resolver404, resolve

from tests.privacy.values import beginning, found_in

OF_EACH_KIND = 3
MAX_PAGES = 900
"""More than there are: there are few kinds. A crawl that reaches this limit fails."""
# What leads on: links, and what a page fetches by itself or when somebody points at it.
_LEADS = re.compile(r'\b(?:href|hx-get|data-[\w-]+)="([/?][^"#]*)')
# These end the session, or are files that say nothing about anybody.
_LEFT_OUT = re.compile(r"logout|signed-out|/static/|jsi18n|/docs")


@dataclass
class Crawl:
    """What was opened, the statuses by address pattern, and what was found on which page."""

    seen: set[str] = field(default_factory=set)
    answers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    leaks: dict[str, list[str]] = field(default_factory=dict)


def route_of(url: str) -> str:
    """The pattern of an address."""
    try:
        return resolve(url.partition("?")[0]).route
    except Resolver404:
        return ""


def crawled(client: Client, begin: list[str], follow: str = "") -> Crawl:
    """Open every kind of page that can be reached: every address in `begin`, and by links at most three of each kind.

    A kind is a pattern of addresses; each further set of names in the query adds one more page. The admin's
    filters are tried one at a time.
    """
    done, waits, taken = Crawl(), list(begin), Counter[tuple[str, ...]]()
    while waits:
        url = waits.pop(0)
        if url in done.seen or _LEFT_OUT.search(url):
            continue
        assert len(done.seen) < MAX_PAGES, f"{len(waits)} pages were left waiting, such as {waits[:5]}"
        done.seen.add(url)
        answer = client.get(url)
        text = read(answer)
        done.answers[route_of(url)].add(answer.status_code)
        if leaked := found_in(text):
            done.leaks[url] = [_around(text, beginning(each)) for each in leaked]
        for link in _LEADS.findall(text):
            target = urllib.parse.urljoin(url, html.unescape(link))
            if not target.startswith("/") or target in done.seen or not re.search(follow, target):
                continue
            route, names = route_of(target), sorted(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query)))
            if route.startswith("admin/") and len(names) > 1:
                continue
            if taken[route, *names] < (1 if names else OF_EACH_KIND) and target not in waits:
                taken[route, *names] += 1
                waits.append(target)
    return done


def _around(text: str, value: str) -> str:
    """Where it is on the page, for the person who has to fix it."""
    at = html.unescape(text).find(value)
    return html.unescape(text)[max(0, at - 80) : at + len(value) + 40]


def read(answer: Any) -> str:
    """The whole answer, however it is sent and packed."""
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    if answer.headers.get("Content-Type", "") == "application/zip":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = b"\n".join(archive.read(name) for name in archive.namelist())
    return str(content.decode())
