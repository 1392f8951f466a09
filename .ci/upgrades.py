"""Do waiting runs survive an upgrade? An earlier commit leaves them, this one migrates, people decide, they end.

upgrades.py COMMIT: needs PostgreSQL, as TEST_DATABASE_URL or at 127.0.0.1:5432. COMMIT must know the demo shop.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

ROOT = Path(__file__).resolve().parent.parent
SERVER = os.environ.get("TEST_DATABASE_URL", "postgres://postgres@127.0.0.1:5432/postgres")
NAME = f"countersign_upgrades_{os.getpid()}"

LEAVE_WAITING = """
from agentapp import loop
from agentapp.demo import opening
from agentapp.models import Run
from approvals.models import Approval
runs = opening.start_opening_runs(opening.open_shop()["sam"])
for run in runs:
    while (again := loop.drive(run.pk)) is not None and not again.delay:
        pass
print("left", Run.objects.filter(state="waiting").count(), "runs waiting for", Approval.objects.count(), "decisions")
assert Approval.objects.filter(state="pending").exists()
"""
DECIDE = """
import time
import uuid
from django.contrib.auth.models import User
from agentapp import actions, loop
from agentapp.models import Run, ToolExecution
from approvals.models import Approval
for name in ("dana", "marco"):  # some need two
    user = User.objects.get(username=name)
    for approval in Approval.objects.filter(state="pending"):
        seen = {"version": approval.version, "action_digest": approval.final_digest or approval.action_digest}
        try:
            actions.decide(approval.pk, actions.NewDecision(id=uuid.uuid4(), type="approve", **seen), user)
        except actions.Refused as refused:
            print(approval.reference, "is not for", name, "-", refused)
approved = list(Approval.objects.filter(state="approved"))
deadline = time.monotonic() + 60
while Approval.objects.filter(state="approved").exists() and time.monotonic() < deadline:  # some are held for a while
    for run in Run.objects.filter(state__in=["waiting", "queued"]):
        loop.drive(run.pk)
    time.sleep(0.5)
executed = ToolExecution.objects.filter(approval__in=approved, state="finished").count()  # well or not
print("of", len(approved), "calls approved after the upgrade", executed, "ran")
assert executed == len(approved) > 0
"""


def main(commit: str) -> int:
    with tempfile.TemporaryDirectory(prefix="countersign-upgrades-") as folder:
        old = Path(folder) / "old"
        environment = {
            **os.environ, "DEBUG": "true", "DATA_DIR": folder, "UNDO_HOLD_SECONDS": "0", "REDIS_URL": "",
            "DATABASE_URL": urlsplit(SERVER)._replace(path=f"/{NAME}").geturl(), "LOG_LEVEL": "ERROR",
        }  # fmt: skip
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(old), commit], cwd=ROOT, check=True)
        try:
            statement(f"CREATE DATABASE {NAME}")
            for where, arguments in (
                (old, ["migrate", "--verbosity", "0"]),
                (old, ["shell", "-v", "0", "-c", LEAVE_WAITING]),
                (ROOT, ["migrate", "--verbosity", "0"]),
                (ROOT, ["shell", "-v", "0", "-c", DECIDE]),
                (ROOT, ["verify_ledger"]),
            ):
                done = subprocess.run(
                    [sys.executable, "manage.py", *arguments], cwd=where, env=environment, check=False
                )
                if done.returncode:
                    return done.returncode
            return 0
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)
            statement(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")


def statement(text: str) -> None:
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(text.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "HEAD^"))
