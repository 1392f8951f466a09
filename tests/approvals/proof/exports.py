"""The stand-alone verifiers as an outsider runs them, and what they say."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from unittest import mock

from approvals.proof import export, verify_export, verify_proof

EXPORT, PROOF = Path(verify_export.__file__), Path(verify_proof.__file__)


def written(path: Path) -> Path:
    """A whole export in a file."""
    path.write_bytes(b"".join(export.lines("system (test)")))
    return path


def said(path: Path, key: str, *more: str, by: ModuleType = verify_export) -> tuple[int, str]:
    """Its exit status and output. Run in this process: a thousand others would take minutes."""
    out = io.StringIO()
    asked = ["verifier", str(path), "--key", key, *more]
    with mock.patch.object(sys, "argv", asked), redirect_stdout(out), redirect_stderr(out):
        try:
            code = by.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue()


def said_of_proof(path: Path, key: str) -> tuple[int, str]:
    return said(path, key, by=verify_proof)


def said_elsewhere(path: Path, key: str, *more: str, by: Path = EXPORT) -> tuple[int, str]:
    """The same in an interpreter that has nothing of ours."""
    command = [sys.executable, "-I", str(by), str(path), "--key", key, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60)
    return done.returncode, done.stdout + done.stderr
