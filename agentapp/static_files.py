"""Static files as they are collected for production: our scripts without comments and air, everything compressed."""

from collections.abc import Iterator
from typing import Any

import rjsmin
from django.core.files.base import ContentFile
from whitenoise.storage import CompressedStaticFilesStorage


class SmallStaticFiles(CompressedStaticFilesStorage):  # type: ignore[misc]
    """Minifies what is ours to change, then compresses as WhiteNoise serves it."""

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        for name in paths:
            if not dry_run and is_ours(name):
                small = minified(self.open(name).read().decode())
                self.delete(name)
                self._save(name, ContentFile(small.encode()))
        yield from super().post_process(paths, dry_run, **options)


def is_ours(name: str) -> bool:
    """Whether a static file is a script of the console. What is vendored is served to the byte."""
    return name.startswith("console/") and name.endswith(".js") and "/vendor/" not in name


def minified(script: str) -> str:
    small: str = rjsmin.jsmin(script)
    return small
