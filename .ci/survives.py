"""Do the tests of an earlier commit pass on this one's tables? If so, old processes keep working while new ones start.

survives.py COMMIT [pytest arguments]: needs PostgreSQL, as TEST_DATABASE_URL or at 127.0.0.1:5432.
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
NAME = f"countersign_survives_{os.getpid()}"


def main(commit: str, arguments: list[str]) -> int:
    url = urlsplit(SERVER)._replace
    with tempfile.TemporaryDirectory(prefix="countersign-survives-") as folder:
        old = Path(folder) / "old"
        environment = {**os.environ, "DEBUG": "true", "DATA_DIR": folder}
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(old), commit], cwd=ROOT, check=True)
        try:
            statement(f"CREATE DATABASE test_{NAME}")
            new = {**environment, "DATABASE_URL": url(path=f"/test_{NAME}").geturl()}
            subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, env=new, check=True)
            # pytest-django puts test_ in front of the name, finds the database, and keeps its tables.
            tested = {**environment, "DATABASE_URL": url(path=f"/{NAME}").geturl()}
            marks = "not browser and not redis and not peers and not apart and not faults"
            command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--reuse-db", "-m", marks, *arguments]
            return subprocess.run(command, cwd=old, env=tested, check=False).returncode
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)
            statement(f"DROP DATABASE IF EXISTS test_{NAME} WITH (FORCE)")


def statement(text: str) -> None:
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(text.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "HEAD^", sys.argv[2:]))
