"""Looks up the names people type among those that exist. An unknown name is an error that lists the known ones."""

import uuid
from collections.abc import Iterable

from django.contrib.auth.models import Group, User
from django.db.models import Model, Q, QuerySet, Value
from django.db.models.functions import Concat

from agentapp.audit.query import identity
from agentapp.models import Tool
from approvals import ledger
from approvals.digest import canonical
from approvals.models import Approval, Event, Rule

ME = "me"
_MOST_KNOWN = 2000


class Unknown(Exception):
    """Nothing has this name. `known` are the names that exist."""

    def __init__(self, value: str, known: Iterable[str]) -> None:
        super().__init__(value)
        self.value, self.known = value, list(known)


def actors(value: str, viewer: User) -> list[str]:
    """The actors a name means, as events name them: by user name, first, last or full name, or one of the machines."""
    if value.lower() == ME:
        return [f"user:{viewer.pk}"]
    if value.lower() in (ledger.SYSTEM, ledger.MODEL):
        return [value.lower()]
    whole = User.objects.annotate(whole=Concat("first_name", Value(" "), "last_name"))
    spelled = Q(username__iexact=value) | Q(first_name__iexact=value) | Q(last_name__iexact=value)
    found = [f"user:{key}" for key in whole.filter(spelled | Q(whole__iexact=value)).values_list("pk", flat=True)]
    if found:
        return found
    if Event.objects.filter(actor_key=value).exists():
        return [value]
    known = User.objects.values_list("username", flat=True)[:_MOST_KNOWN]
    raise Unknown(value, [*known, ME, ledger.SYSTEM, ledger.MODEL, "customer"])


def tool(value: str) -> str:
    """A tool that exists, or one that was called when it still did."""
    if Event.objects.filter(tool=value).exclude(tool="").exists():
        return value
    return named(Tool.objects.values_list("name", flat=True), value)


def rule(value: str) -> str:
    """A rule that exists, or one that asked when it still did."""
    if Approval.objects.filter(rule=value).exists():
        return value
    return named(Rule.objects.values_list("name", flat=True), value)


def team(value: str) -> Group:
    found = Group.objects.filter(name__iexact=value).first()
    if found is None:
        raise Unknown(value, Group.objects.values_list("name", flat=True)[:_MOST_KNOWN])
    return found


def named(there_is: Iterable[str], value: str) -> str:
    """The name among the existing ones, ignoring case."""
    known = list(there_is)
    found = next((name for name in known if name.lower() == value.lower()), None)
    if found is None:
        raise Unknown(value, known)
    return found


def keys[M: Model](rows: QuerySet[M], what: str, value: str) -> list[uuid.UUID]:
    """The keys that an id or a short name means. A short name is the end of a key, which several may share."""
    whole = identity(value)
    if whole is not None:
        return [whole]
    ending = value.lower().removeprefix("run_").removeprefix("apr-")
    found = list(rows.order_by().filter(pk__iendswith=ending).values_list("pk", flat=True)[:20])
    if not found:
        raise Unknown(value, ())
    return found


def named_in(rule: str) -> Q:
    """Events of configuration whose row has this name."""
    return Q(body__contains=f'"name":{canonical(rule)}')


def money_tools() -> list[str]:
    """The tools that declare that they move money."""
    effects = Tool.objects.values_list("name", "effects_template")
    return [name for name, lines in effects if any(line.get("icon") == "money" for line in lines if line)]
