"""Two releases behind one address: no page gets the other's styles under its own names, and none goes without."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.embedded import with_tables
from tests.processes import ROOT

FOR_EVER = "max-age=315360000, public, immutable"
# What a page of the console loads, wherever it names it.
NAMED = re.compile(r'"(/static/[^"]+\.(?:css|js|woff2))"')
HASHED = re.compile(r"\.[0-9a-f]{12}\.(?:css|js|woff2)$")


@dataclass(frozen=True)
class Release:
    """A process of one release, and what its sign-in page names."""

    web: httpx.Client
    names: tuple[str, ...]
    log: Path

    def named(self, file: str) -> str:
        name, ending = file.split(".")
        return next(each for each in self.names if re.search(rf"/{name}\.[0-9a-f]{{12}}\.{ending}$", each))

    def answer(self, name: str) -> httpx.Response:
        return self.web.get(name, headers={"Accept-Encoding": "gzip"})


@contextmanager
def served(folder: Path, **variables: str) -> Iterator[Release]:
    """A release as production serves it: collected, without DEBUG, by a server of its own."""
    (folder / "data").mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")} | {
        "DEBUG": "false",
        "SECRET_KEY": "x7" * 25,
        "DATA_DIR": str(with_tables(folder / "data")),
        "STATIC_ROOT": str(folder / "static"),
        **variables,
    }
    collect = [sys.executable, "manage.py", "collectstatic", "--noinput", "--verbosity", "0"]
    subprocess.run(collect, cwd=ROOT, env=environment, check=True, timeout=240)
    # A request before it has started waits in the queue.
    with socket.create_server(("127.0.0.1", 0)) as line, (folder / "web.log").open("wb") as log:
        serve = [sys.executable, "-m", "uvicorn", "agentapp.asgi:application", "--fd", str(line.fileno())]
        process = subprocess.Popen(
            serve, cwd=ROOT, env=environment, stdout=log, stderr=log, pass_fds=[line.fileno()]
        )  # fmt: skip
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{line.getsockname()[1]}", timeout=240) as web:
                page = web.get("/login/")
                assert page.status_code == 200, page.text
                yield Release(web, tuple(NAMED.findall(page.text)), folder / "web.log")
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Release, Release]]:
    """This release, and the next one, which looks different."""
    folder = tmp_path_factory.mktemp("releases")
    files = shutil.copytree(ROOT / "static", folder / "files")
    with (files / "console/console.css").open("a") as styles:
        styles.write("\n.of-the-next-release { display: block; }\n")
    settings = f"from agentapp.settings import *\nSTATICFILES_DIRS = [{str(files)!r}]\n"
    (folder / "settings_of_the_next.py").write_text(settings)
    following = {"DJANGO_SETTINGS_MODULE": "settings_of_the_next", "PYTHONPATH": str(folder)}
    with served(folder / "this") as this, served(folder / "next", **following) as other:
        yield this, other


def test_what_a_page_names_is_named_after_what_it_holds_and_kept_for_ever(releases: tuple[Release, Release]) -> None:
    this, following = releases
    assert len(this.names) > 5
    for release in releases:
        for name in release.names:
            assert HASHED.search(name), name
            answer = release.answer(name)
            assert answer.status_code == 200, name
            assert answer.headers["Cache-Control"] == FOR_EVER
    assert this.named("console.css") != following.named("console.css")
    assert this.named("additions.css") == following.named("additions.css")


def test_the_font_that_a_page_asks_for_in_advance_is_the_one_that_its_styles_ask_for(
    releases: tuple[Release, Release],
) -> None:
    this, _ = releases
    font = next(name for name in this.names if name.endswith(".woff2"))
    assert Path(font).name in this.answer(this.named("fonts.css")).text


def test_what_is_sent_is_small(releases: tuple[Release, Release]) -> None:
    this, _ = releases
    script = this.answer(this.named("passkey.js"))
    assert script.headers["Content-Encoding"] == "gzip"
    assert "/**" not in script.text
    assert len(script.text) < len((ROOT / "static/console/passkey.js").read_text())


def test_a_file_is_sent_whole_in_part_or_not_at_all_as_it_is_asked_for_and_nothing_is_complained_of(
    releases: tuple[Release, Release],
) -> None:
    this, _ = releases
    name = next(each for each in this.names if each.endswith(".woff2"))
    whole = this.web.get(name, headers={"Accept-Encoding": "identity"})
    kept = Path(this.log.parent / "static" / name.removeprefix("/static/")).read_bytes()
    assert (whole.status_code, whole.content, whole.headers["Content-Length"]) == (200, kept, str(len(kept)))

    part = this.web.get(name, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, kept[10:20])
    assert part.headers["Content-Range"] == f"bytes 10-19/{len(kept)}"

    known = this.web.get(name, headers={"If-None-Match": whole.headers["ETag"]})
    assert (known.status_code, known.content, known.headers["Cache-Control"]) == (304, b"", FOR_EVER)

    head = this.web.head(name, headers={"Accept-Encoding": "identity"})
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(kept)))

    assert "Warning" not in this.log.read_text()


def test_a_page_of_one_release_that_asks_the_other_gets_its_styles_and_nobody_keeps_them(
    releases: tuple[Release, Release],
) -> None:
    this, following = releases
    for asked, other in ((this, following), (following, this)):
        own, instead = asked.answer(asked.named("console.css")), asked.answer(other.named("console.css"))
        assert instead.status_code == 200
        assert instead.headers["Cache-Control"] == "no-store"
        assert instead.headers["Content-Type"] == own.headers["Content-Type"]
        assert instead.text == own.text
        assert ("of-the-next-release" in instead.text) is (asked is following)


def test_what_no_release_has_is_not_found(releases: tuple[Release, Release]) -> None:
    this, _ = releases
    for name in ("console/nothing.0123456789ab.css", "console/nothing.css", "../manage.0123456789ab.py"):
        assert this.answer(f"/static/{name}").status_code == 404


def test_pictures_whose_names_scripts_put_together_keep_plain_names(releases: tuple[Release, Release]) -> None:
    this, _ = releases
    for count in ("0", "10-due"):
        answer = this.answer(f"/static/console/favicon/{count}.svg")
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "max-age=60, public"
