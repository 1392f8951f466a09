"""The only writer of Preferences and SavedView: what each person sets for themselves."""

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import time
from functools import cache

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Case, Q, QuerySet, Value, When

from agentapp.models import Preferences, SavedView
from agentapp.refused import Refused
from approvals.digest import storable
from approvals.manners import AT_ONCE, CHAT, DAILY, MAIL, Manners, Wish
from approvals.models import Notification, Risk
from approvals.prepared import Prepared

Kind = Notification.Kind
BROWSER = "browser"
WAYS = (BROWSER, MAIL, CHAT)
# How people are told unless they choose otherwise. What went wrong, and what is theirs alone, reaches them by mail.
DEFAULTS: dict[str, tuple[str, ...]] = {
    Kind.WAITING: (BROWSER,),
    Kind.HANDED: (BROWSER, MAIL),
    Kind.DUE_SOON: (BROWSER,),
    Kind.FAILED: (BROWSER, MAIL),
    Kind.ANSWERED: (BROWSER,),
    Kind.REMINDED: (MAIL,),
    Kind.ESCALATED: (MAIL,),
    Kind.MENTIONED: (BROWSER, MAIL),
}
# Kept low, because the rows of each view are counted whenever its page is shown.
MAX_VIEWS = 8
_NAME, _QUERY = 60, 500
_CHAT_NAME = re.compile(r"[\w.@+#-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Reach:
    """How to reach a person besides browser and mail, how often to mail them, and whether to mail a second time."""

    chat_name: str = ""
    rhythm: str = AT_ONCE
    rhythm_at: time | None = None
    follow_ups: bool = False


def of(user: User) -> Preferences:
    """What a person has set. Without a row, one with the defaults that is not stored."""
    return Preferences.objects.filter(user=user).first() or Preferences(user=user)


def ways(preferences: Preferences, kind: str) -> tuple[str, ...]:
    """The ways a person is told of one kind of news."""
    chosen = preferences.notifications.get(kind, DEFAULTS[kind])
    return tuple(way for way in WAYS if way in chosen)


def set_looks(user: User, theme: str, density: str) -> None:
    """How the console looks for a person."""
    if theme not in Preferences.Theme.values or density not in Preferences.Density.values:
        raise Refused("invalid", "Choose one of the options offered.")
    Preferences.objects.update_or_create(user=user, defaults={"theme": theme, "density": density})


def set_keys(user: User, single_keys: bool) -> None:
    """Whether single keys act for a person."""
    Preferences.objects.update_or_create(user=user, defaults={"single_keys": single_keys})


def set_notifications(
    user: User,
    chosen: Mapping[str, Iterable[str]],
    quiet: tuple[time, time] | None,
    shows_arguments: bool,
    least_risk: str = Risk.LOW,
    reach: Reach | None = None,
) -> None:
    """Set what a person is told about, in which ways, and when not. `chosen` names every kind.

    `least_risk` applies to requests that wait for a team. People are told what was handed to them whatever its risk.
    """
    kept = {kind: [way for way in WAYS if way in chosen.get(kind, ())] for kind in DEFAULTS}
    if quiet and quiet[0] == quiet[1]:
        raise Refused("invalid", "Quiet hours must begin and end at different times.", "quiet_until")
    if least_risk not in Risk.values:
        raise Refused("invalid", "Choose one of the risks offered.", "least_risk")
    reach = reach or Reach()
    if reach.chat_name and not _CHAT_NAME.fullmatch(reach.chat_name):
        said = "A name in chat has up to 64 letters, digits and . @ + # - _, and no spaces."
        raise Refused("invalid", said, "chat_name")
    if reach.rhythm not in Preferences.Rhythm.values:
        raise Refused("invalid", "Choose one of the times offered.", "rhythm")
    if reach.rhythm == DAILY and reach.rhythm_at is None:
        raise Refused("invalid", "Say at what time of day you want the mail, such as 08:00.", "rhythm_at")
    quiet_from, quiet_until = quiet or (None, None)
    Preferences.objects.update_or_create(
        user=user,
        defaults={
            "notifications": kept,
            "least_risk": least_risk,
            "quiet_from": quiet_from,
            "quiet_until": quiet_until,
            "shows_arguments": shows_arguments,
            "chat_name": reach.chat_name,
            "rhythm": reach.rhythm,
            "rhythm_at": reach.rhythm_at,
            "follow_ups": reach.follow_ups,
        },
    )


@cache
def _who_set(kind: str) -> Prepared[Preferences]:
    return Prepared(lambda: Preferences.objects.filter(notifications__has_key=kind))


def wanting(kind: str) -> dict[int, Wish]:
    """The people who chose to be told of this kind by mail or chat, and from which risk on.

    For kinds that are not mailed by default.
    """
    found = {row.user_id: manners_of(row) for row in _who_set(kind).rows()}
    return {user_id: Wish(ways, one.least_risk) for user_id, one in found.items() if (ways := one.ways(kind))}


def manners(user_ids: Iterable[int]) -> dict[int, Manners]:
    """How each of these people wants to be told. This is all that `approvals` knows of preferences."""
    users = list(user_ids)
    rows = {row.user_id: row for row in Preferences.objects.filter(user__in=users)}
    return {user_id: manners_of(rows.get(user_id) or Preferences(user_id=user_id)) for user_id in users}


def manners_of(row: Preferences) -> Manners:
    """The same for one person, from what they have set."""
    mailed, chatted = (frozenset(kind for kind in DEFAULTS if way in ways(row, kind)) for way in (MAIL, CHAT))
    quiet = (row.quiet_from, row.quiet_until) if row.quiet_from and row.quiet_until else None
    return Manners(
        mailed=mailed,
        quiet=quiet,
        shows_arguments=row.shows_arguments,
        least_risk=row.least_risk,
        chatted=chatted,
        chat_name=row.chat_name,
        rhythm=row.rhythm,
        rhythm_at=row.rhythm_at,
        follow_ups=row.follow_ups,
    )


def seen(views: QuerySet[SavedView], user: User) -> list[SavedView]:
    """The views of a page that are the person's own or shared by others; their own first."""
    # Ordered in the database, so that views shared by others never push a person's own off the end.
    others = Case(When(user=user, then=Value(0)), default=Value(1))
    return list(
        views.select_related("user").filter(Q(user=user) | Q(shared=True)).order_by(others, "name")[: 2 * MAX_VIEWS]
    )


def save_view(user: User, page: str, name: str, query: str, shared: bool = False) -> SavedView:
    """Keep the filters of a list under a name. `shared`: for everybody who may open the page."""
    name = storable(name.strip())
    if not name or len(name) > _NAME:
        raise Refused("invalid", f"Give the view a name of up to {_NAME} characters.", "name")
    if len(query) > _QUERY:
        raise Refused("invalid", "These filters are too long to keep.", "query")
    if SavedView.objects.filter(user=user, page=page).count() >= MAX_VIEWS:
        raise Refused("too_many", f"You can have at most {MAX_VIEWS} views. Delete one first.", "name")
    try:
        with transaction.atomic():
            return SavedView.objects.create(user=user, page=page, name=name, query=query, shared=shared)
    except IntegrityError as error:
        raise Refused("exists", f"You already have a view named {name!r}.", "name") from error


def delete_view(user: User, view_id: uuid.UUID) -> bool:
    """Delete a view. False: it does not exist, or is not theirs."""
    return bool(SavedView.objects.filter(user=user, pk=view_id).delete()[0])
