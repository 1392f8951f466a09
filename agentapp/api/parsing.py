"""Request bodies, read as strictly as a model's arguments: what either database would refuse is refused here."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest
from ninja.operation import Operation
from ninja.parser import Parser

from agentapp.api.errors import ApiProblem, too_large
from approvals.digest import MAX_BYTES, MalformedJSON, parse


class StrictParser(Parser):
    def parse_body(self, request: HttpRequest) -> Any:
        """The body's JSON value. Raises ApiProblem if its type, encoding, size or content is not accepted."""
        charset = (request.content_params or {}).get("charset", "utf-8").lower()
        if request.content_type != "application/json" or charset not in ("utf-8", "utf8"):
            raise ApiProblem("unsupported_media_type", "Send the body as application/json, in UTF-8.")
        return _read(request.body)


def refuse_undeclared(operation: Operation) -> None:
    """Make an operation that declares no body refuse one, which would otherwise be ignored silently."""
    if not any(model.__ninja_param_source__ == "body" for model in operation.models):
        operation.view_func = _without_body(operation.view_func)


def _without_body(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **values: Any) -> Any:
        # Many clients send an empty object, or no content type, when they have nothing to send.
        if request.body and _read(request.body) != {}:
            raise ApiProblem("invalid", "This operation takes no body.")
        return view(request, *args, **values)

    return answered


def _read(content: bytes) -> Any:
    if len(content) > MAX_BYTES:
        raise too_large()
    try:
        return parse(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ApiProblem("malformed_json", f"The body is not UTF-8: byte {error.start} is not valid.") from error
    except MalformedJSON as error:
        raise ApiProblem("malformed_json", str(error)) from error
