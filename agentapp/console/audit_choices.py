"""What the chips of the audit trail offer. Each choice is a query: the one typed, with one more condition."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.contrib.auth.models import User

from agentapp import auth
from agentapp.audit import vocabulary
from agentapp.audit.query import RISKS, Query
from agentapp.models import Agent, Tool
from approvals import ledger
from approvals.models import Rule

MOST = 100
LABELS = {
    "since": "When", "who": "Who", "did": "Action", "tool": "Tool", "rule": "Policy", "risk": "Risk", "agent": "Agent",
}  # fmt: skip
_ICONS = {"since": "clock", "who": "user", "did": "check", "tool": "tools", "rule": "flag", "risk": "alert",
          "agent": "spark"}  # fmt: skip
_WHEN = (("Today", "today"), ("Yesterday", "yesterday..yesterday"), ("24 hours", "24h"), ("7 days", "7d"),
         ("30 days", "30d"), ("90 days", "90d"))  # fmt: skip
_GROUPS = {"decided": "Any decision", "config": "Any configuration change", "sign-ins": "Any sign-in",
           vocabulary.MONEY: "Moved money"}  # fmt: skip
# What people look for most; every other word can be typed.
_DEEDS = (
    "approved", "changed", "rejected", "responded", "undid", "stopped", "asked", "expired", "claimed", "commented",
    "ran", "failed", "unknown", "started", "run-failed", "took-over", "granted", "changed-rule", "configured",
    "engaged", "opened-breaker", "erased", "signed-in", "failed-signin",
)  # fmt: skip


@dataclass(frozen=True)
class Chip:
    """One chip: its word, and what the current query says for it."""

    word: str
    label: str
    icon: str
    value: str


def chips(asked: Query) -> list[Chip]:
    return [Chip(word, label, _ICONS[word], _value(asked, word)) for word, label in LABELS.items()]


def offered(word: str, asked: Query, viewer: User) -> Iterable[tuple[str, Query, bool]]:
    """The choices of a chip, as (label, query, whether it is chosen now). The last one removes the word."""
    chosen = {value for term in asked.of(word) if not term.negated for value in term.values}
    for label, value in OFFERED[word](viewer):
        yield label, asked.with_value(word, value), value in chosen
    if chosen:
        yield f"Any {LABELS[word].lower()}", asked.without(word), False


def _value(asked: Query, word: str) -> str:
    values = [value for term in asked.of(word) if not term.negated for value in term.values]
    words = {value: label for label, value in _WHEN} if word == "since" else {}
    return ", ".join(words.get(value, value) for value in values)


def _people(viewer: User) -> list[tuple[str, str]]:
    people = User.objects.filter(is_active=True).order_by("first_name", "username")[:MOST]
    machines = [("The system", ledger.SYSTEM), ("The model", ledger.MODEL), ("Customers", "customer")]
    return [("Me", "me"), *((auth.name_of(user), user.username) for user in people if user != viewer), *machines]


def _deeds(viewer: User) -> list[tuple[str, str]]:
    groups = [(label, word) for word, label in _GROUPS.items()]
    return groups + [(vocabulary.BY_WORD[word].said, word) for word in _DEEDS]


def _tools(viewer: User) -> list[tuple[str, str]]:
    return [(name, name) for name in Tool.objects.order_by("name").values_list("name", flat=True)[:MOST]]


def _rules(viewer: User) -> list[tuple[str, str]]:
    return [(name, name) for name in Rule.objects.order_by("name").values_list("name", flat=True)[:MOST]]


def _agents(viewer: User) -> list[tuple[str, str]]:
    return [(name, name) for name in Agent.objects.order_by("name").values_list("name", flat=True)[:MOST]]


OFFERED: dict[str, Callable[[User], list[tuple[str, str]]]] = {
    "since": lambda viewer: list(_WHEN),
    "who": _people,
    "did": _deeds,
    "tool": _tools,
    "rule": _rules,
    "risk": lambda viewer: [(risk.capitalize(), risk) for risk in RISKS],
    "agent": _agents,
}
