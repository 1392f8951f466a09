"""Text by outsiders goes the whole way, through worker, stream and pages, and neither acts nor looks like ours."""

import itertools
import re
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp.models import Agent
from approvals.models import Approval, Decision
from tests.conftest import call, calls, says
from tests.e2e.conftest import live, rested
from tests.e2e.stack.conftest import MODEL, Desk, Stack, finished
from tests.hostile import HIDDEN, MESSAGES, Elements, megabyte
from tests.processes import until
from tests.wire import Answer

Browse = Callable[..., Page]
# All that the stream may say: which topic has changed, by an id or a number, the release, and when to come back.
STREAMED = re.compile(r"|retry: [0-9]{3,5}|event: [a-z.-]+|data: ([0-9]{1,6}|[0-9a-f]{12}|[0-9a-f-]{36})")


@dataclass
class Watch:
    """What a page does besides what it shows."""

    page: Page
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = urlsplit(self.page.url).netloc
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on(
            "request",
            lambda request: (
                self.wrong.append(request.url)
                if "evil" in request.url or urlsplit(request.url).netloc not in (own, "")
                else None
            ),
        )

    def look(self, where: str) -> None:
        """The page as it stands, with everything the stream has added to it."""
        found = Elements(self.page.content())
        self.wrong += [f"{where}: {wrong}" for wrong in found.wrong]
        self.wrong += [f"{where}: U+{ord(one):04X} is hidden" for one in sorted(set(HIDDEN) & set(found.said))]


class Stream:
    """One person's stream, read byte by byte as a browser gets it."""

    def __init__(self, page: Page, topics: str) -> None:
        cookies = "; ".join(f"{one['name']}={one['value']}" for one in page.context.cookies())
        address = urlsplit(page.url)._replace(path="/live/", query=f"t={topics}").geturl()
        self.heard = b""
        self._answer = urllib.request.urlopen(urllib.request.Request(address, headers={"Cookie": cookies}))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while line := self._answer.readline():
            self.heard += line

    def lines(self) -> list[str]:
        return self.heard.decode().splitlines()


def approve(page: Page, approval: Approval) -> None:
    """What hides something is of high risk, which takes a second press."""
    page.keyboard.press("a")
    if approval.risk != "high":
        return
    expect(page.get_by_role("button", name=re.compile("^Confirm"))).to_be_focused()
    rested(page).keyboard.press("Enter")


def hostile_run(desk: Desk, names: tuple[str, ...]) -> Approval:
    """A run with these messages wherever outsiders, or a model they have turned, can write."""
    text = "\n".join(MESSAGES[name] for name in names)
    return desk.asks(
        calls(call("m", "read_messages", which=list(names)), text=text),
        calls(call("r", "refund", order=text, amount=5, note=text), text=text),
        says(text),
        input=text,
        metadata={"from": text},
    )


def test_no_message_acts_or_hides_anything_on_its_way_to_people(
    browse: Browse, desk: Desk, dana: User, sam: User, complaints: list[str]
) -> None:
    danas, sams = live(browse(dana, "/inbox/")), browse(sam, "/runs/")
    inbox, trace = Watch(danas), Watch(sams)
    stream = Stream(danas, "inbox,runs")
    requests = {names: hostile_run(desk, names) for names in itertools.batched(MESSAGES, 2, strict=False)}

    def all_told() -> bool:
        rows, news = danas.locator("#queue .q").count(), danas.locator("#news").all_text_contents()
        return rows > 0 and rows + sum(int(words.split()[0]) for words in news) == len(requests)

    until(all_told, "the page to know of every request")
    inbox.look("queue, as it came in")
    danas.reload()
    expect(live(danas).locator("#queue .q")).to_have_count(len(requests))
    inbox.look("queue")
    sams.goto("/runs/")
    expect(sams.locator(".runs .rowlink")).to_have_count(len(requests))
    trace.look("runs")
    for names, approval in requests.items():
        danas.locator(f"#apr-{approval.pk} .q-main").click()
        expect(danas.locator("#peek-id")).to_have_value(str(approval.pk))
        expect(danas.locator("#peek")).not_to_have_attribute("aria-busy", "true")
        inbox.look(f"{names}, beside the queue")
    assert not Decision.objects.exists()

    for names, approval in requests.items():
        danas.goto(f"/approvals/{approval.pk}/")
        inbox.look(f"{names}, request")
        sams.goto(f"/runs/{approval.run_id}/chat/")
        approve(live(danas), approval)
        # What the stream has added.
        expect(sams.locator("[data-said=agent]").last).to_be_visible()
        trace.look(f"{names}, conversation")
        finished(approval.run_id)
        for view in ("?view=events", "?step=1&call=0", "?step=2&call=0"):
            sams.goto(f"/runs/{approval.run_id}/{view}")
            trace.look(f"{names}, run {view}")

    assert inbox.wrong + trace.wrong == []
    assert [line for line in stream.lines() if not STREAMED.fullmatch(line)] == []
    assert "event: inbox-changed" in stream.lines()
    assert complaints == []


def test_what_a_model_streams_is_text_while_it_is_written_and_after(
    browse: Browse, stack: Stack, desk: Desk, sam: User, complaints: list[str]
) -> None:
    Agent.objects.update(driver="tool_calling", model=MODEL.model, streams=True)
    everything = "\n".join(MESSAGES.values())
    middle = len(everything) // 2
    more = threading.Event()
    stack.provider.answer(Answer(events=MODEL.stream(everything[:middle], more, everything[middle:])))
    page = live(browse(sam, "/runs/"))
    run = desk.start()
    page.goto(f"/runs/{run.pk}/chat/")
    watch, stream = Watch(page), Stream(page, f"chat:{run.pk},run:{run.pk}")

    expect(page.locator("#draft")).to_contain_text("The agent will return $1.00.")
    watch.look("draft")
    more.set()
    expect(page.locator("[data-said=agent]")).to_contain_text("</textarea></form>")
    watch.look("answer")
    finished(run.pk)

    assert watch.wrong == []
    assert [line for line in stream.lines() if not STREAMED.fullmatch(line)] == []
    assert "event: draft-changed" in stream.lines()
    assert complaints == []


def test_a_megabyte_of_it_makes_no_large_page_and_no_large_message(
    browse: Browse, stack: Stack, desk: Desk, dana: User, sam: User, complaints: list[str]
) -> None:
    """The model writes it, the tool reads it, and as much of it is passed as is accepted."""
    text = megabyte()
    Agent.objects.update(driver="tool_calling", model=MODEL.model, streams=True)
    read = ("m", "read_messages", {"which": []})
    act = ("r", "refund", {"order": "58213", "amount": 5, "note": text[:60_000]})
    for tool_calls in ([read], [act], []):
        stack.provider.answer(Answer(events=MODEL.stream(text, calls=tool_calls)))
    danas, sams = live(browse(dana, "/inbox/")), live(browse(sam, "/runs/"))
    inbox, trace = Watch(danas), Watch(sams)
    sizes: dict[str, int] = {}
    for page in (danas, sams):
        page.on("response", lambda answer: sizes.update({answer.url: int(answer.headers.get("content-length", 0))}))
    stream = Stream(danas, "inbox")
    approval = desk.asks(input=text[:100_000])

    expect(danas.locator("#queue .q")).to_have_count(1)
    inbox.look("queue")
    live(danas.goto(f"/approvals/{approval.pk}/") and danas)
    inbox.look("request")
    approve(danas, approval)
    finished(approval.run_id)
    for place in ("", "chat/", "?view=conversation", "?view=events", "?step=1&call=0", "?step=2&call=0"):
        sams.goto(f"/runs/{approval.run_id}/{place}")
        trace.look(f"run {place}")

    assert inbox.wrong + trace.wrong == []
    assert [line for line in stream.lines() if not STREAMED.fullmatch(line)] == []
    assert len(stream.heard) < 10_000
    assert {url: size for url, size in sizes.items() if size > 500_000} == {}
    assert complaints == []
