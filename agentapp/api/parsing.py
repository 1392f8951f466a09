"""Request bodies, read as strictly as a model's arguments: what one database would refuse is refused here."""

from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser

from agentapp.api.errors import ApiProblem, too_large
from approvals.digest import MAX_BYTES, MalformedJSON, parse


class StrictParser(Parser):
    def parse_body(self, request: HttpRequest) -> Any:
        """The body's JSON value. Raises ApiProblem for another type, encoding, size or meaning."""
        charset = (request.content_params or {}).get("charset", "utf-8").lower()
        if request.content_type != "application/json" or charset not in ("utf-8", "utf8"):
            raise ApiProblem("unsupported_media_type", "Send the body as application/json, in UTF-8.")
        if len(request.body) > MAX_BYTES:
            raise too_large()
        try:
            return parse(request.body.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ApiProblem("malformed_json", f"The body is not UTF-8: byte {error.start} is not valid.") from error
        except MalformedJSON as error:
            raise ApiProblem("malformed_json", str(error)) from error
