"""Do waiting runs survive an upgrade, and going back? One release leaves them, tables change, the other one ends them.

upgrades.py [COMMIT]: needs PostgreSQL and a superuser of it, as TEST_DATABASE_URL or at 127.0.0.1:5432. COMMIT is the
earlier release; if not given, the last commit before the newest migration. While its tables change, it goes on starting
and driving runs. As in production, the owner of the tables migrates, and everything else connects as another role.
Exits with status 3 if this clone does not reach back that far, as a shallow one does not.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

ROOT = Path(__file__).resolve().parent.parent
SERVER = os.environ.get("TEST_DATABASE_URL", "postgres://postgres@127.0.0.1:5432/postgres")
PRODUCT = f"countersign_upgrades_{os.getpid()}"
OWNER = f"{PRODUCT}_owner"
PASSWORD = secrets.token_hex(16)
NO_HISTORY = 3
TIMEOUT_SECONDS = 600


class Scene:
    """A database, and the processes of both releases that use it."""

    def __init__(self, folder: Path, old: Path) -> None:
        self.folder, self.old = folder, old

    def begin(self, release: Path, role: str, *arguments: str) -> "subprocess.Popen[bytes]":
        server = urlsplit(SERVER)
        address = f"{server.hostname or '127.0.0.1'}:{server.port or 5432}"
        environment = {
            **os.environ, "DEBUG": "true", "DATA_DIR": str(self.folder), "UNDO_HOLD_SECONDS": "0", "REDIS_URL": "",
            "DATABASE_URL": f"postgres://{role}:{PASSWORD}@{address}/{PRODUCT}", "LOG_LEVEL": "ERROR",
            "TOOL_MODULES": "upgrade_tools", "BREAKER_THRESHOLD": "99", "MIGRATION_LOCK_SECONDS": "60",
            "PYTHONPATH": str(ROOT / ".ci"), "WORLD": str(self.folder / "world"),
        }  # fmt: skip
        return subprocess.Popen([sys.executable, "manage.py", *arguments], cwd=release, env=environment)

    def migrate(self, release: Path) -> None:
        ended(self.begin(release, OWNER, "migrate", "--verbosity", "0", "--skip-checks"))
        # Not the command, which an earlier release may lack or have otherwise.
        ended(self.begin(ROOT, OWNER, "grant_tables", PRODUCT))

    def manage(self, release: Path, *arguments: str) -> None:
        ended(self.begin(release, PRODUCT, *arguments))

    def act(self, release: Path, act: str) -> None:
        self.manage(release, *scene(act))

    def forwards(self) -> None:
        """Nothing stops while the tables change."""
        self.migrate(self.old)
        self.act(self.old, "furnish()")
        self.act(self.old, "leave()")
        ready, stop = self.folder / "ready", self.folder / "stop"
        with self.begin(self.old, PRODUCT, *scene(f"go_on({str(ready)!r}, {str(stop)!r})")) as day:
            try:
                while not ready.exists() and day.poll() is None:
                    time.sleep(0.05)
                self.migrate(ROOT)
                self.manage(ROOT, "sync_tools", "--verbosity", "0")
                self.act(ROOT, "finish()")
                stop.touch()
                ended(day)
            finally:
                day.kill()
        self.manage(ROOT, "verify_ledger")

    def back(self) -> None:
        """The old release goes on with the new one's tables."""
        self.migrate(ROOT)
        self.act(ROOT, "furnish()")
        self.act(ROOT, "leave()")
        self.manage(self.old, "sync_tools", "--verbosity", "0")
        self.act(self.old, "finish()")
        self.manage(self.old, "verify_ledger")


def scene(act: str) -> list[str]:
    return ["shell", "--no-imports", "-v", "0", "-c", f"import upgrade_scene; upgrade_scene.{act}"]


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Wait until it has ended well. Raises CalledProcessError, or TimeoutExpired after it was killed."""
    try:
        status = process.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    if status:
        raise subprocess.CalledProcessError(status, process.args)


def main(commit: str) -> None:
    for way in (Scene.forwards, Scene.back):
        print(f"-- {way.__name__}", flush=True)
        with ExitStack() as afterwards:
            folder = Path(afterwards.enter_context(tempfile.TemporaryDirectory(prefix="countersign-upgrades-")))
            old = folder / "old"
            afterwards.callback(git, "worktree", "prune")
            afterwards.callback(git, "worktree", "remove", "--force", str(old))
            git("worktree", "add", "--quiet", "--detach", str(old), commit, check=True)
            for role in (OWNER, PRODUCT):
                afterwards.callback(statement, f"DROP ROLE IF EXISTS {role}")
                statement(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}' IN ROLE pg_read_all_stats")
            afterwards.callback(statement, f"DROP DATABASE IF EXISTS {PRODUCT} WITH (FORCE)")
            statement(f"CREATE DATABASE {PRODUCT} OWNER {OWNER}")
            way(Scene(folder, old))


def statement(text: str) -> None:
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(text.encode())


def git(*arguments: str, check: bool = False) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=check, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def before_the_newest_migration() -> str:
    """Exits if this clone does not reach back that far: its oldest commit seems to have added everything."""
    newest = git("log", "-1", "--format=%H", "--diff-filter=A", "--", "*/migrations/0*.py", check=True)
    earlier = git("rev-parse", "--verify", "--quiet", f"{newest}^")
    if not earlier:
        print("This clone has no commit from before the newest migration.")
        sys.exit(NO_HISTORY)
    return earlier


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else before_the_newest_migration())
