"""What changed in the configuration: who changed which tool, rule or agent, when, and what it was before."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from agentapp import auth
from agentapp.console import differences, problems, words
from agentapp.console.parts import render_part
from agentapp.console.shell import Forbidden, signed_in
from agentapp.models import Tool
from approvals import changes as made
from approvals.changes import Field, Made, Wanted
from approvals.digest import canonical, storable
from approvals.models import Event
from approvals.places import Place

PAGE = 50
MAX_CHARS = 120
VIEW_RIGHT = "approvals.view_event"
# A name shared by more people than this does not identify anybody.
MAX_PEOPLE = 100
SINCE = {"24h": ("24 hours", timedelta(days=1)), "7d": ("7 days", timedelta(days=7)),
         "30d": ("30 days", timedelta(days=30)), "90d": ("90 days", timedelta(days=90))}  # fmt: skip
KINDS = {
    "tool": ("Tool", "agentapp.Tool"),
    "rule": ("Rule", "approvals.Rule"),
    "draft": ("Rule version", "approvals.RuleVersion"),
    "agent": ("Agent", "agentapp.Agent"),
    "route": ("Route", "agentapp.Route"),
    "guideline": ("Guideline", "agentapp.Guideline"),
    "relation": ("Guideline relation", "agentapp.GuidelineRelation"),
    "overlap": ("Tool relation", "agentapp.ToolRelation"),
    "variable": ("Context variable", "agentapp.ContextVariable"),
    "source": ("Tool source", "agentapp.ToolSource"),
    "channel": ("Channel", "approvals.Channel"),
    "webhook": ("Webhook", "agentapp.WebhookEndpoint"),
    "person": ("Person", "auth.User"),
    "group": ("Group", "auth.Group"),
}
_WORDS = {table: word for word, table in KINDS.values()}
_DID = {"created": "Created", "changed": "Changed", "deleted": "Deleted"}
# How many fields a row of the list names.
_NAMED = 3
# Two writes by the same person within this time are one change.
_TOGETHER = timedelta(seconds=2)
# These change with every change, so they say nothing.
_SILENT = ("id", "updated_at", "created_at")


@dataclass(frozen=True)
class Line:
    """One change as the list shows it."""

    made: Made
    person: User | None
    who: str
    did: str
    kind: str
    about: str
    version: Made | None = None
    """For a rule: the version that was made with it."""


@dataclass(frozen=True)
class Shown:
    """One field of a change. `lines` compares long values; it is empty where before and after fit on one line."""

    field: Field
    lines: Sequence[differences.Line] = ()


@dataclass(frozen=True)
class Filters:
    """What the list is narrowed to, as typed. Empty: everything."""

    kind: str = ""
    name: str = ""
    who: str = ""
    since: str = ""
    key: str = ""

    @classmethod
    def read(cls, request: HttpRequest) -> "Filters":
        given = {name: storable(request.GET.get(name, "")).strip()[:MAX_CHARS] for name in cls.__dataclass_fields__}
        given["kind"] = given["kind"] if given["kind"] in KINDS else ""
        given["since"] = given["since"] if given["since"] in SINCE else ""
        return cls(**given)

    @property
    def any(self) -> bool:
        return any(vars(self).values())

    @property
    def wanted(self) -> Wanted:
        return Wanted(
            table=KINDS[self.kind][1] if self.kind else "",
            name=self.name,
            key=self.key,
            who=_people(self.who) if self.who else None,
            since=timezone.now() - SINCE[self.since][1] if self.since else None,
        )


@require_safe
def changes(request: HttpRequest) -> HttpResponse:
    """The list, latest first. `from` names the change after which the page begins."""
    _may_view(request)
    filters = Filters.read(request)
    try:
        before = Place.read(request.GET["from"]) if request.GET.get("from") else None
    except ValueError:
        return problems.no_such_place(request, "from")
    page = made.latest(filters.wanted, PAGE, before)
    context = {
        "rows": _folded(_lines(page.made)),
        "filters": filters,
        "kinds": [(key, word) for key, (word, _) in KINDS.items()],
        "spans": [(key, word) for key, (word, _) in SINCE.items()],
        "older": str(page.older or ""),
        "is_cut": page.is_cut,
        "before": before,
    }
    return render_part(request, "console/changes.html", "list", context)


@require_safe
def change(request: HttpRequest, event_id: uuid.UUID) -> HttpResponse:
    """One change, field by field: below its row, or on its own page."""
    _may_view(request)
    event = Event.objects.filter(pk=event_id, type__in=made.TYPES).first()
    if event is None:
        raise Http404("There is no such change.")
    found = made.read(event)
    [line] = _lines([found])
    context = {
        "line": line,
        "event": event,
        "fields": [
            _shown(field) for field in found.fields if field.name not in _SILENT and field.before != field.after
        ],
        "now_at": _where_it_is(found, signed_in(request)),
    }
    return render_part(request, "console/change.html", "record", context)


def _may_view(request: HttpRequest) -> None:
    if not signed_in(request).has_perm(VIEW_RIGHT):
        raise Forbidden("This page shows who changed the configuration, and what it was before.", VIEW_RIGHT)


def _people(text: str) -> list[str]:
    """The actors that a name may mean: people by any of their names, others by their own."""
    named = Q(username__icontains=text) | Q(first_name__icontains=text) | Q(last_name__icontains=text)
    keys = User.objects.filter(named).order_by("pk").values_list("pk", flat=True)[:MAX_PEOPLE]
    return [*(f"user:{key}" for key in keys), text, text.lower()]


def _lines(found: Sequence[Made]) -> list[Line]:
    """The lines, with people's current names: one query."""
    keys = {one.actor.split(":")[1] for one in found if one.actor.startswith("user:")}
    people = User.objects.in_bulk([int(key) for key in keys if key.isdecimal()])
    return [_line(one, people) for one in found]


def _folded(lines: list[Line]) -> list[Line]:
    """Join a rule and the version that was written with it in one line."""
    found: list[Line] = []
    for line in lines:
        if found and _is_its_version(found[-1].made, line.made):
            found[-1] = replace(line, version=found[-1].made)
        else:
            found.append(line)
    return found


def _is_its_version(version: Made, rule: Made) -> bool:
    return (
        (version.table, version.what, rule.table) == ("approvals.RuleVersion", "created", "approvals.Rule")
        and version.name.rpartition(", version ")[0] == rule.name
        and version.actor == rule.actor
        and version.at - rule.at < _TOGETHER
    )


def _line(one: Made, people: Mapping[int, User]) -> Line:
    person, who = None, words.actor(one.actor)
    if one.actor.startswith("user:"):
        key = one.actor.split(":")[1]
        person = people.get(int(key)) if key.isdecimal() else None
        name, _, way = who.partition(" (")
        who = " (".join(filter(None, (auth.name_of(person) if person else name, way)))
    kind = _WORDS.get(one.table, one.table.partition(".")[2])
    return Line(one, person, who, _DID.get(one.what, one.what), kind, _about(one))


def _about(one: Made) -> str:
    """The fields that a change is about, in a few words."""
    if one.what != "changed":
        return ""
    named = [field.label for field in one.fields if field.name not in _SILENT]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more


def _shown(field: Field) -> Shown:
    before, after = field.before, field.after
    is_short = not field.is_long and not isinstance(before, dict | list) and not isinstance(after, dict | list)
    if is_short or before is None or after is None:
        return Shown(field)
    if isinstance(before, str) and isinstance(after, str):
        return Shown(field, differences.of_texts(before, after))
    return Shown(field, differences.differences(canonical(before), canonical(after)))


def _where_it_is(found: Made, user: Any) -> str:
    """The row's current address. Empty if it is gone, or this person may not open it."""
    if found.table == "agentapp.Tool" and user.has_perm("agentapp.view_tool"):
        name = Tool.objects.filter(pk=found.key).values_list("name", flat=True).first()
        return reverse("tool", args=[name]) if name else ""
    app, _, model = found.table.lower().partition(".")
    if found.what == "deleted" or not (user.is_staff and user.has_perm(f"{app}.view_{model}")):
        return ""
    try:
        return reverse(f"admin:{app}_{model}_change", args=[found.key])
    except NoReverseMatch:
        return ""
