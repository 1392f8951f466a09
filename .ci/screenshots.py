"""Take the pictures in docs/screenshots/: every page and its main states, as the demo shop has them.

    make screenshots [ARGS="approval run"]

Plays the demo on throw-away data, opens each page in Chromium at desk and phone size in the light scheme, the main ones
in the dark one as well, and writes WebP files and their index. Arguments name the pictures to take; none means all.
"""

import base64
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import django

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "screenshots"
DESIGN = FOLDER / "design"
sys.path.insert(0, str(ROOT))
os.environ["DEBUG"], os.environ["DJANGO_SETTINGS_MODULE"] = "true", "agentapp.settings"
# A fresh folder: checkpoints from an earlier take belong to another ledger.
KEPT = tempfile.TemporaryDirectory(prefix="countersign-screenshots-")
os.environ["DATA_DIR"] = KEPT.name
# Without DEBUG, serving needs a key.
os.environ["SECRET_KEY"] = secrets.token_urlsafe(50)
# The page for a new password exists only where mail can be sent. No mail is sent.
os.environ["EMAIL_HOST"] = "mail.invalid"
# Shows a provider's button, with no provider behind it.
os.environ["OIDC_PROVIDERS"], os.environ["OIDC_NORTHWIND_CLIENT_ID"] = "northwind", "countersign"
os.environ["OIDC_NORTHWIND_ISSUER"] = "https://id.northwind.invalid"
# Playwright keeps an event loop in this thread; our own queries are synchronous all the same.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
for variable in ("DATABASE_URL", "REDIS_URL"):
    os.environ.pop(variable, None)
django.setup()
# Pictures include pages that refuse and fail: their log lines would bury the names.
logging.disable(logging.CRITICAL)

from django.conf import settings  # noqa: E402
from django.test import Client  # noqa: E402
from pictures import PICTURES, Picture, is_live  # noqa: E402
from playwright.sync_api import Browser, ViewportSize, sync_playwright  # noqa: E402
from story import Story, tell  # noqa: E402

from agentapp import first_admin  # noqa: E402
from agentapp.demo import check, opening  # noqa: E402

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUALITY = 40
SIZES: dict[str, ViewportSize] = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The product on an empty throw-away database. Its address is a name: passkeys do not work at an IP address."""
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    settings.DEBUG = False  # no error page of Django's own
    with check.throw_away_database(folder), check.web() as url:
        yield url.replace("127.0.0.1", "localhost")


def take_all(wanted: Sequence[Picture], folder: Path, browser: Browser, url: str) -> list[str]:
    """First take what an empty installation shows, then the shop. Returns the names of the pictures that failed."""
    nobody = Story(keys={"token": first_admin.issue_token()})
    failed = [picture.name for picture in wanted if picture.empty and not was_taken(browser, url, nobody, picture)]
    rest = [picture for picture in wanted if not picture.empty]
    if not rest:
        return failed
    people = opening.open_shop()
    with check.workers(folder):
        story = tell(people)
        return failed + [picture.name for picture in rest if not was_taken(browser, url, story, picture)]


def was_taken(browser: Browser, url: str, story: Story, picture: Picture) -> bool:
    """A picture that fails does not stop the others."""
    try:
        size = take(browser, url, story, picture)
    except Exception as error:
        print(f"{picture.name:<24}{type(error).__name__}: {error}", flush=True)
        return False
    print(f"{picture.name:<24}{size / 1024:>6.0f} KiB", flush=True)
    return True


def take(browser: Browser, url: str, story: Story, picture: Picture) -> int:
    """Take one picture at every size. Returns their total bytes."""
    cookies: list[Any] = []
    if picture.person:
        client = Client()
        client.force_login(story.people[picture.person])
        cookies = [{"name": name, "value": kept.value, "url": url} for name, kept in client.cookies.items()]
    with picture.during(story) if picture.during else nullcontext():
        return sum(
            take_one(browser, url, picture, picture.path.format(**story.keys), cookies, device, scheme)
            for scheme in ("light", "dark") if picture.main or scheme == "light"
            for device in SIZES
        )  # fmt: skip


def take_one(
    browser: Browser, url: str, picture: Picture, path: str, cookies: list[Any], device: str, scheme: str
) -> int:
    context = browser.new_context(
        base_url=url, viewport=SIZES[device], color_scheme="dark" if scheme == "dark" else "light",
        has_touch=device == "phone", locale="en-US", permissions=["notifications"],
    )  # fmt: skip
    context.add_cookies(cookies)
    page = context.new_page()
    page.goto(path)
    page.evaluate("document.fonts.ready")
    is_live(page)
    if picture.then is not None:
        picture.then(page)
    devtools = context.new_cdp_session(page)
    taken = devtools.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})["data"]
    data = base64.b64decode(taken)
    (FOLDER / f"{picture.name}-{device}-{scheme}.webp").write_bytes(data)
    context.close()
    return len(data)


def write_index() -> None:
    """The page that shows every picture, next to the design it follows if there is one."""
    lines = [
        "# Every page",
        "",
        "What the pages look like, with the demo's data. `make screenshots` takes the pictures and writes this page.",
        "Where there is a design, it comes first.",
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
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="countersign-screenshots-")))
        url = stack.enter_context(served(folder))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        failed = take_all([picture for picture in PICTURES if picture.name in wanted], folder, browser, url)
        browser.close()
    write_index()
    if failed:
        print(f"Not taken: {', '.join(failed)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
