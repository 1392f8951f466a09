"""Who is calling: a bearer token with the scope that the operation needs, and the person it belongs to."""

from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja.security import HttpBearer

from agentapp import auth, discretion
from agentapp.api import rate
from agentapp.api.errors import ApiProblem
from agentapp.models import ApiToken
from approvals import ledger


class ApiRequest(HttpRequest):
    """A request that `Bearer` let through."""

    auth: ApiToken


class Bearer(HttpBearer):
    """Lets a request through if its token is live and has `scope`. Cookies are ignored.

    The scope is checked before any row the request names, so a refusal reveals nothing about them.
    """

    def __init__(self, scope: str, *, counts: bool = True) -> None:
        """`counts`: whether this is a request of its own rather than a later check of one still open."""
        super().__init__()
        self.counts = counts
        if scope not in auth.SCOPES:
            raise ValueError(f"Unknown scope {scope!r}.")
        self.scope = scope

    def __call__(self, request: HttpRequest) -> ApiToken:
        kind, _, secret = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise ApiProblem(
                "unauthenticated",
                "Send a token in the header: Authorization: Bearer cs_….",
                headers={"WWW-Authenticate": 'Bearer realm="api"'},
            )
        return self.authenticate(request, secret.strip())

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        found = auth.authenticate(token)
        if found is None:
            raise ApiProblem(
                "unauthenticated",
                "This token is unknown, expired or revoked, or its person is no longer active.",
                headers={"WWW-Authenticate": 'Bearer realm="api", error="invalid_token"'},
            )
        if not auth.holds(found, self.scope):
            challenge = f'Bearer realm="api", error="insufficient_scope", scope="{self.scope}"'
            raise ApiProblem(
                "insufficient_scope",
                f"This needs the scope {self.scope}; the token has {', '.join(found.scopes)}."
                if self.scope not in found.scopes
                else auth.ONLY_FOR_ONESELF,
                headers={"WWW-Authenticate": challenge},
            )
        if self.counts:
            rate.limit(found)
        discretion.look_for(found.user)
        ledger.come(found.user, f"token {found.name}")
        return found


def person(request: ApiRequest) -> User:
    """The person a token acts as."""
    return request.auth.user


def require_any(request: ApiRequest, *rights: str) -> None:
    """Refuse unless the token's person has one of these rights."""
    if not any(person(request).has_perm(right) for right in rights):
        raise ApiProblem("forbidden", f"{request.auth.user.get_username()} needs the right {' or '.join(rights)}.")
