"""Static files in production: minified, compressed, and named after their content, so that releases never mix."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import rjsmin
from django.core.files.base import ContentFile
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage

# The digest that Django puts before a file name's extension.
_DIGEST = re.compile(r"\.[0-9a-f]{12}(?=\.[^./]+$)")


class SmallStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Minifies our own scripts, names a copy of every file after its content, and compresses everything."""

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        for name in filter(is_ours, [] if dry_run else paths):
            small = minified(self.open(name).read().decode())
            self.delete(name)
            self._save(name, ContentFile(small.encode()))
            paths[name] = self, name  # what is copied from here on
        yield from super().post_process(paths, dry_run=dry_run, **options)

    def stored_name(self, name: str) -> str:
        """The name that a page asks for. A file that was not collected keeps its plain name, so that no page fails."""
        try:
            stored: str = super().stored_name(name)
        except ValueError:
            return name
        return stored


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Serves static files. Browsers keep those that are named after their content for ever.

    While two releases run behind one address, a page of one may ask the other for its files. A file that is missing
    here is answered with this release's own, which must not be cached under that name: the next request may reach the
    right release.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if (own := self._own_in_place_of(request.path_info)) is not None:
            response: HttpResponseBase = self.serve(own, request)
            response["Cache-Control"] = "no-store"
            return response
        answer: HttpResponseBase = super().__call__(request)
        return answer

    def serve(self, static_file: Any, request: HttpRequest) -> HttpResponseBase:
        """Under ASGI the file, or the range of it, is read here: at once, in the thread that the request has anyway.

        Django would warn of a plain iterator, and then read it to its end in another thread.
        """
        answer = super().serve(static_file, request)
        if isinstance(request, ASGIRequest):
            answer.streaming_content = _given(answer.getvalue())
        served: HttpResponseBase = answer
        return served

    def _own_in_place_of(self, asked: str) -> Any:
        """This release's own file, if the requested name exists only in another release."""
        if self.autorefresh or not asked.startswith(self.static_prefix) or asked in self.files:
            return None
        return self.files.get(_DIGEST.sub("", asked))


async def _given(content: bytes) -> AsyncIterator[bytes]:
    yield content


def is_ours(name: str) -> bool:
    """Whether a static file is a script of the console. Vendored files are served unchanged."""
    return name.startswith("console/") and name.endswith(".js") and "/vendor/" not in name


def minified(script: str) -> str:
    small: str = rjsmin.jsmin(script)
    return small
