"""What happens to words where a page is narrow: a column of single letters passes every other check."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp import breakers
from agentapp.console import queue
from agentapp.models import Agent
from approvals import ledger
from tests.agentapp.console.conftest import make_waiting
from tests.conftest import Clerk, says
from tests.e2e.looks import sideways

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
WIDTHS = [1440, 1100, 900, 740, 390, 320]
# Words on the page of at most twenty letters whose letters are on more than one line.
CUT = r"""() => {
  const cut = [], walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let text = walk.nextNode(); text; text = walk.nextNode()) {
    if (!text.parentElement.checkVisibility() || text.parentElement.closest(".vh")) continue;
    for (const word of text.data.matchAll(/[\p{L}\p{N}_]{2,20}/gu)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(({top}) => Math.round(top))).size > 1) cut.push(word[0]);
    }
  }
  return cut;
}"""


def cut_words(page: Page) -> list[str]:
    found: list[str] = page.evaluate(CUT)
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_no_word_is_cut_into_letters(
    browse: Browse, clerk: Clerk, sam: User, ada: User, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    clerk.run(says("It is there."), input="When does my parcel come? It was to be here by noon")
    Agent.objects.update(name="concierge")
    requests = [make_waiting(sam, tool=name, title="Change delivery address") for name in ("refund", "change_address")]
    with ledger.transaction():
        for _ in range(3):
            breakers.failed(breakers.Thing("source", "agentapp-demo-tools"), "timeout: it gave no answer in time " * 4)
    picked = "&".join(f"pick={one.pk}" for one in requests)
    monkeypatch.setattr(queue, "STORM", 1)
    page = browse(ada, "/runs/", width)
    expect(page.get_by_role("cell", name="concierge")).to_be_visible()
    cut = {}
    for path in ("/runs/", "/switches/", "/inbox/", f"/inbox/batch/?{picked}"):
        page.goto(path)
        cut[path] = cut_words(page)
    assert {path: words for path, words in cut.items() if words} == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_why_one_may_not_write_in_a_conversation_is_a_line_beside_its_icon(
    browse: Browse, clerk: Clerk, sam: User, mia: User, width: int
) -> None:
    read_only = clerk.run(says("It is there."), input="When does my parcel come?", conversation="ticket-7")
    page = browse(mia, f"/runs/{read_only.pk}/chat/", width)

    for words in ("You can read this, not write in it", "is switched off"):
        note = page.locator(".say", has_text=words)
        icon, text = note.locator("svg").bounding_box(), note.locator("span span").bounding_box()
        box = note.bounding_box()
        assert icon is not None
        assert text is not None
        assert box is not None
        assert 0 < text["x"] - icon["x"] - icon["width"] < 16, "the words begin beside the icon"
        assert box["height"] < 90, "the note leaves the page to what was said"
        assert cut_words(page) == []
        assert not sideways(page)
        Agent.objects.update(enabled=False)
        page.reload()
