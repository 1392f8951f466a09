"""Which release a process serves, as a digest of its pages or of its code. Processes of one release agree."""

import functools
import hashlib
from collections.abc import Container, Iterable

from django.conf import settings

_FOLDERS = ("templates", "static/console")
_SUFFIXES = {".html", ".js", ".css"}
_CODE = ("agentapp", "approvals")


@functools.cache
def fingerprint() -> str:
    """Twelve characters that change whenever a template, script or style of the console does."""
    return _digest(_FOLDERS, _SUFFIXES)


@functools.cache
def of_code() -> str:
    """Twelve characters that change whenever the product's code does, and so how it may treat a run."""
    return _digest(_CODE, {".py"})


def _digest(folders: Iterable[str], suffixes: Container[str]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((settings.BASE_DIR / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                digest.update(str(path.relative_to(settings.BASE_DIR)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
