"""What went wrong, as RFC 9457 problem details: one table of codes, one shape, one place that answers.

A client matches on `code`. `title` names the kind of problem and is the same every time, `detail` is a
sentence about this occurrence, `field` names the input at fault.
"""

import logging
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from pydantic import BaseModel, ConfigDict, Field

from agentapp import auth
from agentapp.actions import Refused
from agentapp.api.wire import as_json
from agentapp.models import ApiToken
from agentapp.refused import status_of
from approvals.database import AWAY
from approvals.models import Approval

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:countersign:problem:"

# Statuses of the problems that no action raises.
_STATUS = {
    "malformed_json": 400,
    "unauthenticated": 401,
    "insufficient_scope": 403,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "too_many_requests": 429,
    "too_many_streams": 429,
    "internal_error": 500,
    "unavailable": 503,
}
# Every code a response can carry, with its title.
_TITLES = {
    "malformed_json": "The body cannot be read",
    "unauthenticated": "A valid token is needed",
    "insufficient_scope": "The token lacks a scope",
    "forbidden": "The token's person may not do this",
    "editor": "People may not approve arguments that they changed or had proposed",
    "run_ended": "The run has ended",
    "mocked": "The run was mocked",
    "not_paused": "The run is not paused",
    "taken_over": "Somebody has taken over the run",
    "not_taken_over": "You have not taken over the run",
    "not_ended": "The run has not ended",
    "not_under_way": "Another run of the conversation is under way",
    "part_of_a_run": "Another run asked for this one",
    "lender_barred": "The person who lent you the right may not decide this",
    "took_over": "People who had a hand in a run may not decide about it",
    "needs_person": "Only a person in the console may decide this",
    "customer_decides": "Only the customer answers this",
    "not_the_customer": "Someone involved in the run cannot answer as its customer",
    "starter": "The person who started this run may not decide about it",
    "not_yours": "This is another person's decision",
    "not_found": "There is nothing here",
    "method_not_allowed": "The method is not allowed here",
    "already_decided": "It is already decided or closed",
    "superseded": "A new request has replaced it",
    "already_asked": "Somebody has already asked for it",
    "cannot_undo": "The call cannot be taken back",
    "decided_by_you": "You have already decided",
    "decided_for_you": "Somebody has already decided for you",
    "expired": "It has expired",
    "changed": "The request has changed",
    "action_changed": "The call has changed",
    "already_engaged": "The switch is already engaged",
    "already_revoked": "The grant is already revoked",
    "already_summarised": "There is a summary of more messages",
    "already_resolved": "The outcome is already known",
    "conversation_changed": "The conversation has changed",
    "conversation_exists": "The conversation already exists",
    "too_late": "It has already taken effect",
    "not_covered": "No checkpoint covers it yet",
    "erased": "It has been erased",
    "not_signed": "There is no key to sign with",
    "body_too_large": "The body is too large",
    "unsupported_media_type": "The body is not JSON",
    "invalid": "A value is not valid",
    "invalid_arguments": "The arguments do not fit the tool",
    "invalid_cursor": "The cursor is not valid",
    "locked_field": "The argument is locked",
    "policy_denied": "A rule forbids the call",
    "message_required": "A message is required",
    "too_long": "That is too long",
    "not_allowed": "The rule does not allow this decision",
    "nothing_said": "Nothing has been said yet",
    "unknown_agent": "There is no such agent",
    "unknown_route": "There is no such route",
    "idempotency_key_reused": "The key belongs to another request",
    "decision_id_reused": "The id belongs to another decision",
    "too_many_comments": "Too many comments",
    "too_many_messages": "Too many messages",
    "too_many_runs": "Too many runs are under way",
    "too_many_requests": "Too many requests",
    "too_many_streams": "Too many streams",
    "internal_error": "Something went wrong here",
    "unavailable": "The database is unavailable",
}
CODES: dict[str, tuple[int, str]] = {
    code: (_STATUS.get(code) or status_of(code), title) for code, title in _TITLES.items()
}
"""Every code with its status and its title."""


class FieldProblem(BaseModel):
    """One input at fault."""

    field: str = Field(description="Path of the input, such as `args/amount`. Empty for the whole body.")
    detail: str


class Lender(BaseModel):
    """Who lent another person the right to decide."""

    username: str
    name: str


class Decider(BaseModel):
    """Who decided. Without a username, the customer did."""

    username: str | None
    name: str
    on_behalf_of: Lender | None = Field(default=None, description="Who lent them the right, if it was not their own.")


class DecisionInConflict(BaseModel):
    """The decision that counts."""

    id: str
    type: str
    message: str
    decided_at: str


class ApprovalInConflict(BaseModel):
    """The approval as it stands now. Read it again, then decide about this one."""

    id: str
    state: str
    version: int
    action_digest: str
    superseded_by: str | None = Field(default=None, description="The request that replaces it, if you may see it.")


class Problem(BaseModel):
    """Problem details (RFC 9457). Members that do not apply are left out."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:countersign:problem:already_decided",
                    "title": "It is already decided or closed",
                    "status": 409,
                    "detail": "Dana Whitfield already approved it. Your decision was not recorded.",
                    "code": "already_decided",
                    "decided_by": {"username": "dana", "name": "Dana Whitfield"},
                    "decision": {
                        "id": "0199f7a2-6d5e-7c3e-9a4b-8f1f6f0f2b11",
                        "type": "approve",
                        "message": "",
                        "decided_at": "2026-11-20T14:11:09+00:00",
                    },
                    "approval": {
                        "id": "0199f7a2-1b1c-7f6e-8c55-4a3f6b0e9d21",
                        "state": "approved",
                        "version": 2,
                        "action_digest": "7f0a5d31c4b8e2962d1f3a60b97c45e8d2604fb1a39ce8570d6b24f183ac59e7",
                    },
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="What programs match on.")
    field: str | None = Field(default=None, description="The input at fault.")
    errors: list[FieldProblem] | None = Field(default=None, description="Every input at fault, if there are several.")
    decided_by: Decider | None = Field(default=None, description="In a conflict: who decided first.")
    decision: DecisionInConflict | None = Field(default=None, description="What they decided.")
    approval: ApprovalInConflict | None = Field(default=None, description="The approval as it stands now.")
    conversation_version: int | None = Field(default=None, description="The current version of the conversation.")


class ApiProblem(Exception):
    """Ends a request with a problem. `extra` holds additional members, `headers` additional headers."""

    def __init__(
        self,
        code: str,
        detail: str,
        field: str = "",
        extra: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.field = code, detail, field
        self.extra, self.headers = extra or {}, headers or {}


def problems(*statuses: int) -> dict[int, type[Problem]]:
    """The failures an operation declares. Every operation refuses undeclared bodies and parameters (400, 413, 422)."""
    return dict.fromkeys(sorted({400, 401, 403, 413, 422, 429, 500, 503, *statuses}), Problem)


def respond(problem: ApiProblem) -> HttpResponse:
    status, title = CODES[problem.code]
    body = {
        "type": f"{TYPE_PREFIX}{problem.code}",
        "title": title,
        "status": status,
        "detail": problem.detail,
        "code": problem.code,
        **({"field": problem.field} if problem.field else {}),
        **problem.extra,
    }
    return HttpResponse(as_json(body), status=status, content_type=CONTENT_TYPE, headers=problem.headers)


def unavailable() -> ApiProblem:
    return ApiProblem("unavailable", "The database does not answer, or accepts no changes at the moment.")


def not_found() -> ApiProblem:
    """The same answer, whether the thing does not exist or this person may not see it."""
    return ApiProblem("not_found", "There is nothing here that you may see.")


def register(api: NinjaAPI) -> None:
    """Answer every exception from an operation with problem details."""
    api.add_exception_handler(ApiProblem, lambda request, error: respond(error))  # type: ignore[arg-type]
    api.add_exception_handler(Refused, lambda request, error: respond(_refused(request, error)))  # type: ignore[arg-type]
    api.add_exception_handler(ValidationError, lambda request, error: respond(_invalid(error)))  # type: ignore[arg-type]
    api.add_exception_handler(Http404, lambda request, error: respond(not_found()))
    api.add_exception_handler(RequestDataTooBig, lambda request, error: respond(too_large()))
    api.add_exception_handler(HttpError, _unreadable)  # type: ignore[arg-type]
    api.add_exception_handler(Exception, _unexpected)  # type: ignore[arg-type]


def too_large() -> ApiProblem:
    return ApiProblem("body_too_large", "The body is larger than 256 KiB.")


def _refused(request: HttpRequest, refused: Refused) -> ApiProblem:
    status, _ = CODES[refused.code]
    extra = _conflict(request, refused.approval) if status == 409 and refused.approval is not None else {}
    if refused.version is not None:
        extra["conversation_version"] = refused.version
    if refused.wrong:
        extra["errors"] = [{"field": _named(refused.code, name), "detail": detail} for name, detail in refused.wrong]
    return ApiProblem(refused.code, refused.message, _named(refused.code, refused.field), extra)


def _named(code: str, field: str) -> str:
    """The input's path in the body: arguments are under `args`."""
    is_argument = code in ("invalid_arguments", "locked_field") and field != "args"
    return f"args/{field}".rstrip("/") if is_argument else field


def _conflict(request: HttpRequest, approval: Approval) -> dict[str, Any]:
    members: dict[str, Any] = {
        "approval": {
            "id": str(approval.pk),
            "state": approval.state,
            "version": approval.version,
            "action_digest": approval.final_digest or approval.action_digest,
        }
    }
    token: ApiToken = request.auth  # type: ignore[attr-defined]
    newer = auth.visible_approvals(token.user).filter(supersedes=approval).first()
    if newer is not None:
        members["approval"]["superseded_by"] = str(newer.pk)
    decision = approval.decisions.select_related("user", "on_behalf_of").filter(undone_at__isnull=True).last()
    if decision is not None:
        username = decision.user.get_username() if decision.user is not None else None
        members["decided_by"] = {"username": username, "name": decision.name}
        if decision.on_behalf_of is not None:
            lender = decision.on_behalf_of.get_username()
            members["decided_by"]["on_behalf_of"] = {"username": lender, "name": decision.lender}
        members["decision"] = {
            "id": str(decision.pk),
            "type": decision.type,
            "message": decision.message,
            "decided_at": decision.decided_at.isoformat(),
        }
    return members


def _invalid(error: ValidationError) -> ApiProblem:
    """Inputs that do not fit their declared types. A malformed id in the path is answered as not found."""
    found = [(item["loc"], item) for item in error.errors]
    if any(where[0] == "path" for where, _ in found):
        return not_found()
    errors = [{"field": _path(where), "detail": _sentence(item)} for where, item in found]
    first = errors[0]
    detail = f"{first['field']}: {first['detail']}" if first["field"] else first["detail"]
    return ApiProblem("invalid", detail, first["field"], {"errors": errors[:20]})


def _path(where: tuple[Any, ...]) -> str:
    """`("body", "body", "args", "amount")` → `args/amount`: the source and the body's parameter name are ours.

    So is the name of the model that holds query parameters, which precedes parameters that nobody declared.
    """
    inner = where[2:] if where[0] == "body" or (where[0] == "query" and len(where) > 2) else where[1:]
    return "/".join(str(part) for part in inner)


# The error types of an array, a text or a number where an object belongs.
_NO_OBJECT = ("model_type", "model_attributes_type", "dict_type")


def _sentence(item: dict[str, Any]) -> str:
    words = {
        "missing": "It is required.",
        "extra_forbidden": "There is no such field.",
        **dict.fromkeys(_NO_OBJECT, "It must be an object."),
    }
    is_body = item["loc"][0] == "body" and len(item["loc"]) <= 2
    if is_body and (item["type"] == "missing" or item["type"] in _NO_OBJECT):
        return "The body must be a JSON object."
    return words.get(item["type"], f"{item['msg'].removeprefix('Value error, ').rstrip('.')}.")


def _unreadable(request: HttpRequest, error: HttpError) -> HttpResponse:
    """The framework wraps whatever the parser raises. Answer with what the parser said."""
    cause = error.__cause__
    if isinstance(cause, ApiProblem):
        return respond(cause)
    return _unexpected(request, cause if isinstance(cause, Exception) else error)


def _unexpected(request: HttpRequest, error: Exception) -> HttpResponse:
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    if isinstance(error, AWAY):
        return respond(unavailable())
    return respond(ApiProblem("internal_error", "The request failed and changed nothing. The error has been logged."))
