"""Do waiting runs survive an upgrade, and going back? One release leaves them, tables change, the other one ends them.

upgrades.py [COMMIT]: needs PostgreSQL, as TEST_DATABASE_URL or at 127.0.0.1:5432. COMMIT is the earlier release; if not
given, the last commit before the newest migration. While its tables change, it goes on starting and driving runs. Exits
with status 3 if this clone does not reach back that far.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

ROOT = Path(__file__).resolve().parent.parent
SERVER = os.environ.get("TEST_DATABASE_URL", "postgres://postgres@127.0.0.1:5432/postgres")
NAME = f"countersign_upgrades_{os.getpid()}"


class Scene:
    """A database, and the processes of both releases that use it."""

    def __init__(self, folder: Path, old: Path) -> None:
        self.folder, self.old = folder, old
        self.environment = {
            **os.environ, "DEBUG": "true", "DATA_DIR": str(folder), "UNDO_HOLD_SECONDS": "0", "REDIS_URL": "",
            "DATABASE_URL": urlsplit(SERVER)._replace(path=f"/{NAME}").geturl(), "LOG_LEVEL": "ERROR",
            "TOOL_MODULES": "upgrade_tools", "BREAKER_THRESHOLD": "99",
            "PYTHONPATH": str(ROOT / ".ci"), "WORLD": str(folder / "world"),
        }  # fmt: skip

    def begin(self, release: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "manage.py", *arguments], cwd=release, env=self.environment)

    def manage(self, release: Path, *arguments: str) -> None:
        ended(self.begin(release, *arguments))

    def act(self, release: Path, act: str) -> None:
        self.manage(release, *scene(act))

    def forwards(self) -> None:
        """Nothing stops while the tables change."""
        self.manage(self.old, "migrate", "--verbosity", "0", "--skip-checks")
        self.act(self.old, "furnish()")
        self.act(self.old, "leave()")
        ready, stop = self.folder / "ready", self.folder / "stop"
        day = self.begin(self.old, *scene(f"go_on({str(ready)!r}, {str(stop)!r})"))
        while not ready.exists() and day.poll() is None:
            time.sleep(0.05)
        self.manage(ROOT, "migrate", "--verbosity", "0", "--skip-checks")
        self.manage(ROOT, "sync_tools", "--verbosity", "0")
        self.act(ROOT, "finish()")
        stop.touch()
        ended(day)
        self.manage(ROOT, "verify_ledger")

    def back(self) -> None:
        """The old release goes on with the new one's tables."""
        self.manage(ROOT, "migrate", "--verbosity", "0", "--skip-checks")
        self.act(ROOT, "furnish()")
        self.act(ROOT, "leave()")
        self.manage(self.old, "sync_tools", "--verbosity", "0")
        self.act(self.old, "finish()")
        self.manage(self.old, "verify_ledger")


def scene(act: str) -> list[str]:
    return ["shell", "--no-imports", "-v", "0", "-c", f"import upgrade_scene; upgrade_scene.{act}"]


def ended(process: "subprocess.Popen[bytes]") -> None:
    if process.wait():
        sys.exit(process.returncode)


def main(commit: str) -> None:
    for way in (Scene.forwards, Scene.back):
        with tempfile.TemporaryDirectory(prefix="countersign-upgrades-") as folder:
            old = Path(folder) / "old"
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(old), commit], cwd=ROOT, check=True)
            print(f"-- {way.__name__}", flush=True)
            try:
                statement(f"CREATE DATABASE {NAME}")
                way(Scene(Path(folder), old))
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)
                statement(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")


def statement(text: str) -> None:
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(text.encode())


def before_the_newest_migration() -> str:
    """Empty if this clone does not know."""
    newest = git("log", "-1", "--format=%H", "--diff-filter=A", "--", "*/migrations/0*.py")
    return git("rev-parse", "--verify", "--quiet", f"{newest}^") if newest else ""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    if not (earlier := sys.argv[1] if len(sys.argv) > 1 else before_the_newest_migration()):
        print("This clone has no commit from before the newest migration.")
        sys.exit(3)
    main(earlier)
