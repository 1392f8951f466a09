"""Threat 24, a package that is not what it claims: each has a hash, and one that does not match it is not installed."""

import base64
import hashlib
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NAME = "countersign_canary"
LOCK = ROOT / "requirements.lock"
UV = ROOT / ".uv" / "bin" / "uv"


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


def command_of(file: str) -> list[str]:
    """How this file installs what production needs: uv's arguments."""
    text = (ROOT / file).read_text().replace("\\\n", " ")
    [said] = re.findall(r"(?:\$\(UV\)|uv) (pip install [^\n]*-r pyproject\.toml)", text)
    return shlex.split(said)


def installs(folder: Path, file: str, lock: str) -> bool:
    """Whether the command of this file installs a product that needs the package, from this lock file."""
    project = f'[project]\nname = "product"\nversion = "1"\ndependencies = ["{NAME}"]\n'
    (folder / "pyproject.toml").write_text(project)
    (folder / "requirements.lock").write_text(lock)
    command = command_of(file)
    python = command.index("--python")
    command[python + 1] = sys.executable
    more = ["--target", str(folder / "installed"), "--offline", "--no-index", "--find-links", str(folder)]
    environment = {**os.environ, "UV_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [UV, *command, *more], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or re.search("[Hh]ash", done.stderr), done.stderr
    return (folder / "installed" / f"{NAME}.py").exists()


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile"])
@pytest.mark.parametrize(
    ("lock", "installed"),
    [
        pytest.param(f"{NAME}==1.0 --hash=sha256:{{right}}", True, id="what was meant"),
        pytest.param(f"{NAME}==1.0 --hash=sha256:{{wrong}}", False, id="something else"),
        pytest.param(f"{NAME}==1.0", False, id="without a hash"),
        pytest.param("", False, id="not in the lock"),
    ],
)
def test_only_what_the_lock_file_means_is_installed(tmp_path: Path, file: str, lock: str, installed: bool) -> None:
    meant = hashlib.sha256(wheel(tmp_path, "what was meant").read_bytes()).hexdigest()
    assert installs(tmp_path, file, lock.format(right=meant, wrong="0" * 64) + "\n") is installed


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile"])
def test_without_required_hashes_anything_is_installed(tmp_path: Path, file: str, monkeypatch: Any) -> None:
    wheel(tmp_path, "something else")
    command = [part for part in command_of(file) if part != "--require-hashes"]
    monkeypatch.setattr(f"{__name__}.command_of", lambda file: command)
    assert installs(tmp_path, file, "") is True


def test_every_package_of_the_lock_file_has_a_version_and_a_hash() -> None:
    lines = [line for line in LOCK.read_text().splitlines() if not line.strip().startswith("#")]
    entries = re.split(r"\n(?=\S)", "\n".join(lines))
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[\w.\[\],-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
