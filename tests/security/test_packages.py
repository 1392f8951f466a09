"""Threat 24, a package that is not what it claims: each has a hash, and one that does not match it is not installed."""

import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = "countersign_canary"
LOCK = ROOT / "requirements.lock"


def wheel(folder: Path, says: str) -> Path:
    """A package with one module."""
    info = f"{NAME}-1.0.dist-info"
    files = {
        f"{NAME}.py": f"SAYS = {says!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{name},sha256={_short(text)},{len(text)}" for name, text in files.items()]
    made = folder / f"{NAME}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": "\n".join([*lines, f"{info}/RECORD,,"])}.items():
            archive.writestr(name, text)
    return made


def _short(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def installs(folder: Path, lock: Path) -> bool:
    """Whether it can be installed from this lock file, without asking anybody outside."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--find-links",
        str(folder),
    ]
    done = subprocess.run(
        [*command, "--target", str(folder / "installed"), "-r", str(lock)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or "DO NOT MATCH THE HASHES" in done.stderr, done.stderr
    return (folder / "installed" / f"{NAME}.py").exists()


@pytest.mark.parametrize(("locked", "installed"), [(True, False), (False, True)], ids=["with hashes", "without"])
def test_a_package_that_was_replaced_is_installed_only_where_there_are_no_hashes(
    tmp_path: Path, locked: bool, installed: bool
) -> None:
    meant = hashlib.sha256(wheel(tmp_path, "what was meant").read_bytes()).hexdigest()
    wheel(tmp_path, "something else")
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"{NAME}==1.0" + (f" --hash=sha256:{meant}\n" if locked else "\n"))
    assert installs(tmp_path, lock) is installed


def test_every_package_of_the_lock_file_has_a_version_and_a_hash() -> None:
    lines = [line for line in LOCK.read_text().splitlines() if not line.strip().startswith("#")]
    entries = re.split(r"\n(?=\S)", "\n".join(lines))
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[\w.\[\],-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
