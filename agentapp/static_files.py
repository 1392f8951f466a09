"""Static files in production: small, compressed, and named after what they hold, so that no two releases mix."""

import re
from collections.abc import Iterator
from typing import Any

import rjsmin
from django.core.files.base import ContentFile
from django.http import HttpRequest, HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage

# As Django writes it in front of a name's ending.
_DIGEST = re.compile(r"\.[0-9a-f]{12}(?=\.[^./]+$)")


class SmallStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Minifies what is ours to change, names a copy of every file after what it holds, and compresses all of it."""

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        for name in filter(is_ours, [] if dry_run else paths):
            small = minified(self.open(name).read().decode())
            self.delete(name)
            self._save(name, ContentFile(small.encode()))
            paths[name] = self, name  # what is copied from here on
        yield from super().post_process(paths, dry_run=dry_run, **options)

    def stored_name(self, name: str) -> str:
        """What a page asks for. What was not collected has its plain name: no page fails for want of a style."""
        try:
            stored: str = super().stored_name(name)
        except ValueError:
            return name
        return stored


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Answers for static files. Those that are named after what they hold are kept by browsers for ever.

    While two releases stand behind one address, a page of one asks the other for its files. What is not there is
    answered with this release's own, which nobody may keep under that name: the next to ask may meet the right one.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if (own := self._own_in_place_of(request.path_info)) is not None:
            response: HttpResponseBase = self.serve(own, request)
            response["Cache-Control"] = "no-store"
            return response
        answer: HttpResponseBase = super().__call__(request)
        return answer

    def _own_in_place_of(self, asked: str) -> Any:
        """This release's file, where one is asked for that only another has under that name."""
        if self.autorefresh or not asked.startswith(self.static_prefix) or asked in self.files:
            return None
        return self.files.get(_DIGEST.sub("", asked))


def is_ours(name: str) -> bool:
    """Whether a static file is a script of the console. What is vendored is served to the byte."""
    return name.startswith("console/") and name.endswith(".js") and "/vendor/" not in name


def minified(script: str) -> str:
    small: str = rjsmin.jsmin(script)
    return small
