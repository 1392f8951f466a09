"""Take the pictures in docs/screenshots/: every page and its main states, as the demo shop has them.

    make screenshots [ARGS="approval run"]

Plays the demo on throw-away data, opens each page in Chromium at a desk and on a phone, light, the main ones dark
as well, and writes WebP files and their index. Arguments name the pictures to take; none means all.
"""

import base64
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import django

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "screenshots"
DESIGN = FOLDER / "design"
sys.path.insert(0, str(ROOT))
os.environ["DEBUG"], os.environ["DJANGO_SETTINGS_MODULE"] = "true", "agentapp.settings"
# The page for a new password is there where mail can be sent. None is.
os.environ["EMAIL_HOST"] = "mail.invalid"
# Playwright keeps an event loop in this thread; our queries beside it are synchronous all the same.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
for name in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(name, None)

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUALITY = 40
SIZES = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


ERASURE = "Ticket 88160: erase my data\n\nAna Pereira asks to have all that is known about her erased."
ERASING: dict[str, Any] = {
    "text": "Ana asks to be erased, and writes from the address on her account.",
    "tool_calls": [
        {
            "id": "erase",
            "name": "delete_customer_data",
            "arguments": {"customer_id": "40117", "reason": "Asked for it in ticket 88160"},
        }
    ],
}


@dataclass(frozen=True)
class Picture:
    """One page in one state. `path` is formatted with what the story made; `then` brings it into the state."""

    name: str
    title: str
    path: str
    person: str = "dana"
    then: Callable[[Any], None] | None = None
    # The main pages, which are taken dark as well.
    main: bool = False


def press(*keys: str) -> Callable[[Any], None]:
    def then(page: Any) -> None:
        page.wait_for_timeout(450)  # keys rest for 400 ms after a page is shown
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_timeout(300)

    return then


def search_refund(page: Any) -> None:
    press("Control+k")(page)
    page.keyboard.type("ref")
    page.locator(".pal-i", has_text="Refund").first.wait_for()


PICTURES = (
    Picture("signin", "Sign in", "/login/", person="", main=True),
    Picture("reset", "A new password by mail", "/login/reset/", person=""),
    Picture("reset-asked", "A new password: what was sent", "/login/reset/asked/", person=""),
    Picture("reset-refused", "A new password: a link that no longer works", "/login/reset/1-used-up/", person=""),
    Picture("inbox", "Inbox", "/inbox/", main=True),
    Picture("inbox-mine", "Inbox: nothing is mine", "/inbox/?view=mine", person="marco"),
    Picture("inbox-decided", "Inbox: decided", "/inbox/?view=decided"),
    Picture("inbox-nothing", "Inbox: a filter that finds nothing", "/inbox/?q=nothing&risk=low"),
    Picture("inbox-filters", "Inbox: filters", "/inbox/filters/?risk=high"),
    Picture("inbox-views", "Inbox: saved views", "/inbox/views/?risk=high"),
    Picture("inbox-keys", "The keys of a page", "/inbox/", then=press("?")),
    Picture("focus", "Focus mode", "/inbox/focus/"),
    Picture("approval", "A request", "/approvals/{refund}/", main=True),
    Picture("approval-reject", "A request: rejecting", "/approvals/{refund}/", then=press("r")),
    Picture("approval-diff", "A request: what an edit changes", "/approvals/{refund}/?view=diff"),
    Picture("approval-json", "A request as JSON", "/approvals/{refund}/?view=json"),
    Picture("approval-critical", "A critical request: approving", "/approvals/{critical}/", then=press("a")),
    Picture("approval-own", "A request of one's own run", "/approvals/{refund}/", person="sam"),
    Picture("approval-injected", "A request with words from outside", "/approvals/{injected}/"),
    Picture("approval-asked", "A request: the agent was asked", "/approvals/{asked}/"),
    Picture("approval-held", "A request: approved, and still to be undone", "/approvals/{held}/"),
    Picture("approval-done", "A request: carried out", "/approvals/{done}/"),
    Picture("approval-rejected", "A request: rejected", "/approvals/{rejected}/", person="marco"),
    Picture("hand-over", "Handing a request over", "/approvals/{refund}/hand-over/"),
    Picture("snooze", "Snoozing a request", "/approvals/{refund}/snooze/"),
    Picture("runs", "Runs", "/runs/", person="mia"),
    Picture("runs-waiting", "Runs that wait", "/runs/?state=waiting", person="mia"),
    Picture("run", "A run", "/runs/{waiting_run}/?step=3&call=0", main=True),
    Picture("run-done", "A run that has ended", "/runs/{done_run}/", person="sam"),
    Picture("run-messages", "A run: what the model was sent", "/runs/{done_run}/?step=2&tab=messages", person="mia"),
    Picture("run-costs", "A run: costs", "/runs/{done_run}/?view=costs", person="mia"),
    Picture("run-conversation", "A run: conversation", "/runs/{done_run}/?view=conversation", person="mia"),
    Picture("run-events", "A run: events", "/runs/{done_run}/?view=events", person="mia"),
    Picture("run-find", "A run: finding in the trace", "/runs/{done_run}/?q=58213", person="mia"),
    Picture("run-guided", "A run by guidelines", "/runs/{guided_run}/?step=1", person="mia"),
    Picture("run-cancel", "Cancelling a run", "/runs/{waiting_run}/cancel/", person="sam"),
    Picture("run-new", "Starting a run", "/runs/new/", person="sam"),
    Picture("chat", "Talking with an agent", "/runs/{waiting_run}/chat/", person="sam"),
    Picture("chat-taken", "Talking: taken over by a person", "/runs/{taken_run}/chat/", person="dana"),
    Picture("customer", "The customer's own page", "{customer_page}", person="", main=True),
    Picture("palette", "Search or jump to", "/runs/", then=search_refund),
    Picture("search", "Search without script", "/search/?q=refund"),
    Picture("switches", "Kill switches and breakers", "/switches/", person="ada"),
    Picture("settings", "Settings: profile", "/settings/"),
    Picture("settings-notifications", "Settings: notifications", "/settings/notifications/"),
    Picture("settings-appearance", "Settings: appearance", "/settings/appearance/"),
    Picture("settings-keys", "Settings: keys", "/settings/keys/"),
    Picture("settings-security", "Settings: second factors and passkeys", "/settings/security/"),
    Picture("settings-sessions", "Settings: sessions", "/settings/sessions/"),
    Picture("settings-tokens", "Settings: API tokens", "/settings/tokens/"),
    Picture("settings-absence", "Settings: while away", "/settings/absence/"),
    Picture("forbidden", "A page that needs a right one lacks", "/switches/", person="sam"),
    Picture("not-found", "A page that is not there", "/nowhere/"),
    Picture("admin", "Admin", "/admin/", person="ada", main=True),
    Picture("admin-tools", "Admin: tools", "/admin/agentapp/tool/", person="ada"),
    Picture("admin-tool", "Admin: a tool", "/admin/agentapp/tool/{tool}/change/", person="ada", main=True),
    Picture("admin-rules", "Admin: rules", "/admin/approvals/rule/", person="ada"),
    Picture("admin-agent", "Admin: an agent", "/admin/agentapp/agent/{agent}/change/", person="ada"),
    Picture("admin-guideline", "Admin: a guideline", "/admin/agentapp/guideline/{guideline}/change/", person="ada"),
    Picture("admin-sources", "Admin: where tools come from", "/admin/agentapp/toolsource/", person="ada"),
    Picture("admin-import", "Admin: importing a document", "/admin/agentapp/toolsource/import/{import}/", person="ada"),
)


def tell_story(people: dict[str, Any]) -> dict[str, str]:
    """Play the demo's scenarios and decide some of them. Returns the keys that the paths name."""
    from agentapp import actions
    from agentapp.demo import client, opening
    from agentapp.demo.guided_scenarios import MISSING_NUMBER, TAKE_BACK
    from agentapp.demo.scenarios import ADDRESS_CHANGE, AT_START, DAMAGED_KETTLE, INJECTED_TICKET
    from agentapp.models import Agent, Guideline, Run, Tool
    from approvals.models import Approval

    def start(scenario: Any) -> Run:
        """In a conversation of its own, so that none waits for another."""
        return opening.start(replace(scenario, conversation=f"ticket-{uuid.uuid4().hex[:6]}"), people["sam"])

    def asked(run: Run) -> Approval:
        waiting = Approval.objects.filter(run_id=run.pk, state__in=Approval.UNDECIDED)
        return client.wait_for("a request of each run", waiting.first)

    def decide(approval: Approval, kind: str, by: str, message: str = "") -> None:
        digest = approval.final_digest or approval.action_digest
        new = actions.NewDecision(uuid.uuid4(), kind, approval.version, digest, message=message)
        actions.decide(approval.pk, new, people[by])

    def ended(run: Run) -> Run | None:
        return Run.objects.filter(pk=run.pk, state__in=Run.FINAL).first()

    done = start(DAMAGED_KETTLE)
    carried_out = asked(done)
    decide(carried_out, "approve", "dana")
    rejected = asked(start(ADDRESS_CHANGE))
    decide(rejected, "reject", "dana", "The parcel has left already.")
    client.wait_for("a run to end", lambda: ended(done))

    taken = start(ADDRESS_CHANGE)
    asked(taken)
    actions.take_over_run(taken.pk, people["dana"])

    refund, address, injected = (asked(start(scenario)) for scenario in AT_START)
    question = asked(start(DAMAGED_KETTLE))
    actions.ask_agent(question.pk, "Did Ana ask for a replacement before?", people["dana"])
    held = asked(start(INJECTED_TICKET))
    guided, answered = talk(TAKE_BACK, people["sam"]), talk(MISSING_NUMBER, people["sam"])
    critical = asked(start(replace(DAMAGED_KETTLE, input=ERASURE, route="", script=[ERASING])))
    actions.claim_request(address.pk, people["marco"])
    return {
        "refund": str(refund.pk),
        "injected": str(injected.pk),
        "asked": str(question.pk),
        "held": str(held.pk),
        "critical": str(critical.pk),
        "done": str(carried_out.pk),
        "rejected": str(rejected.pk),
        "waiting_run": str(refund.run_id),
        "done_run": str(done.pk),
        "taken_run": str(taken.pk),
        "tool": str(Tool.objects.get(name="refund_payment").pk),
        "agent": str(Agent.objects.get(name="support").pk),
        "guided_run": str(guided.pk),
        "customer_page": customer_page(answered, people["sam"]),
        "guideline": str(Guideline.objects.get(name="wants-to-send-back").pk),
        "import": read_document(people["ada"]),
    }


def talk(dialogue: Any, starter: Any) -> Any:
    """A customer's whole dialogue with the concierge. Returns the run that answered last."""
    from agentapp import actions
    from agentapp.demo import client
    from agentapp.models import Run

    conversation = f"letter-{uuid.uuid4().hex[:6]}"
    for turn in dialogue.turns:
        new = actions.NewRun("concierge", turn.says, "", dialogue.customer, conversation, script=turn.script)
        run = actions.start_run(new, starter)
        client.wait_for("the concierge", Run.objects.filter(pk=run.pk, state__in=[*Run.FINAL, "waiting"]).first)
    return Run.objects.select_related("conversation").get(pk=run.pk)


def customer_page(run: Any, maker: Any) -> str:
    """The address of the page on which the customer of a run's conversation reads and writes."""
    from datetime import timedelta

    from django.utils import timezone

    from agentapp import customer_links

    link = customer_links.make(run.conversation, maker, timezone.now() + timedelta(hours=1), "system:demo")
    return f"/talk/{customer_links.signed(link)}/"


def read_document(reader: Any) -> str:
    """A service's document, read and not taken yet, beside a server that does not answer. Returns its page's key."""
    from agentapp import refreshing
    from agentapp.importing import pending
    from agentapp.importing.planning import Given
    from agentapp.models import ToolSource

    document = (ROOT / "tests" / "documents" / "github.json").read_text()
    gone = ToolSource.objects.create(name="warehouse", kind="mcp", location="https://warehouse.invalid/mcp")
    refreshing.refresh(gone, "system:demo")
    return str(pending.keep(Given(document, name="github", location="https://api.github.com"), reader).pk)


@contextmanager
def shop() -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """The demo on throw-away data: its address, its people, and what there is to see."""
    from django.conf import settings

    from agentapp.demo import check, opening

    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="countersign-screenshots-")))
        stack.enter_context(check.throw_away_database(folder))
        people = opening.open_shop()
        settings.DEBUG = False  # no page of Django's own
        url = stack.enter_context(check.web())
        stack.enter_context(check.workers(folder))
        yield url, people, tell_story(people)


def hold(people: dict[str, Any], approval_id: str) -> None:
    """Approve right before the picture is taken: what is held runs after some seconds."""
    from agentapp import actions
    from approvals.models import Approval

    approval = Approval.objects.get(pk=approval_id)
    if approval.state == Approval.State.PENDING:
        new = actions.NewDecision(uuid.uuid4(), "approve", approval.version, approval.action_digest)
        actions.decide(approval.pk, new, people["dana"])


def take(browser: Any, url: str, people: dict[str, Any], keys: dict[str, str], picture: Picture) -> int:
    """Take one picture at every size. Returns how many bytes that came to."""
    from django.test import Client

    cookies = []
    if picture.person:
        client = Client()
        client.force_login(people[picture.person])
        cookies = [{"name": name, "value": m.value, "url": url} for name, m in client.cookies.items()]
    if picture.name == "approval-held":
        hold(people, keys["held"])
    size = 0
    for scheme in ("light", "dark") if picture.main else ("light",):
        for device, viewport in SIZES.items():
            context = browser.new_context(
                base_url=url, viewport=viewport, color_scheme=scheme, has_touch=device == "phone", locale="en-US",
                permissions=["notifications"],
            )  # fmt: skip
            context.add_cookies(cookies)
            page = context.new_page()
            page.goto(picture.path.format(**keys))
            page.evaluate("document.fonts.ready")
            if page.locator("[data-live-words]").count():
                page.locator("[data-live-words]", has_text="Live").first.wait_for(state="attached")
            if picture.then is not None:
                picture.then(page)
            devtools = context.new_cdp_session(page)
            taken = devtools.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})["data"]
            data = base64.b64decode(taken)
            (FOLDER / f"{picture.name}-{device}-{scheme}.webp").write_bytes(data)
            size += len(data)
            context.close()
    return size


def write_index() -> None:
    """The page that shows every picture, beside the design it follows where there is one."""
    lines = [
        "# Every page",
        "",
        "What the pages look like, with the demo's data. Made by `make screenshots`, which writes this page too.",
        "Where there is a design, it stands first.",
        "",
    ]
    for picture in PICTURES:
        lines += [f"## {picture.title}", ""]
        for folder, names in ((DESIGN, "design/"), (FOLDER, "")):
            for scheme in ("light", "dark"):
                found = [f"{picture.name}-{device}-{scheme}.webp" for device in SIZES]
                shown = [name for name in found if (folder / name).exists()]
                kind = "design" if names else "now"
                for name in shown:
                    width = 220 if "-phone-" in name else 640
                    lines.append(f'<img src="{names}{name}" width="{width}" alt="{picture.title}, {kind}, {scheme}">')
        lines.append("")
    (FOLDER / "README.md").write_text("\n".join(lines))


def main() -> int:
    wanted = set(sys.argv[1:]) or {picture.name for picture in PICTURES}
    if unknown := sorted(wanted - {picture.name for picture in PICTURES}):
        print(f"There is no picture {unknown[0]!r}; there are {', '.join(picture.name for picture in PICTURES)}.")
        return 2
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        print(f"Pictures need one of {', '.join(CHROMIUM)}.")
        return 1
    django.setup()
    from playwright.sync_api import sync_playwright

    with shop() as (url, people, keys), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for picture in PICTURES:
            if picture.name in wanted:
                print(f"{picture.name:<24}{take(browser, url, people, keys, picture) / 1024:>6.0f} KiB", flush=True)
        browser.close()
    write_index()
    return 0


if __name__ == "__main__":
    sys.exit(main())
