"""Grants for tests, made from a real request by the action that makes them in the product."""

from typing import Any

from django.contrib.auth.models import Permission, User

from agentapp import actions
from approvals.models import Approval, Grant
from tests.conftest import Clerk, call, calls, says


def let_grant(user: User) -> User:
    """Give a person the right to allow calls for a while. Returns them reloaded, since a user object caches rights."""
    user.user_permissions.add(Permission.objects.get(codename="add_grant"))
    return User.objects.get(pk=user.pk)


def a_grant(
    clerk: Clerk, user: User, tool: str = "send", arguments: dict[str, Any] | None = None, **terms: Any
) -> Grant:
    """A grant by this person, made from a request in a run of its own, which stays open."""
    run = clerk.run(calls(call("asked", tool, **({"to": "ann"} if arguments is None else arguments))), says("done"))
    [approval] = clerk.open(run)
    return grant_from(approval, user, **terms)


def grant_from(approval: Approval, user: User, **terms: Any) -> Grant:
    new = actions.NewGrant(**{"rules": {}, "days": "7", "reason": "They are harmless.", **terms})
    return actions.make_grant(approval.pk, new, let_grant(user))
