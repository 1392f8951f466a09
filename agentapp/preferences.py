"""The only writer of Preferences and SavedView: what each person sets for themselves."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import time

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from agentapp.models import Preferences, SavedView
from agentapp.refused import Refused
from approvals.digest import storable
from approvals.manners import Manners
from approvals.models import Notification, Risk

Kind = Notification.Kind
BROWSER, MAIL = "browser", "mail"
WAYS = (BROWSER, MAIL)
# What people are told of who have not said otherwise. What went wrong, and what is theirs alone, reaches them by mail.
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
# Each is counted whenever its page is shown.
MAX_VIEWS = 8
_NAME, _QUERY = 60, 500


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
        raise Refused("invalid", "Choose one of the looks that are offered.")
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
) -> None:
    """Of what a person is told, in which ways, and when not. `chosen` names every kind.

    `least_risk` is for requests that wait for a team; what was handed to somebody is told whatever its risk.
    """
    kept = {kind: [way for way in WAYS if way in chosen.get(kind, ())] for kind in DEFAULTS}
    if quiet and quiet[0] == quiet[1]:
        raise Refused("invalid", "Quiet hours begin and end at different times.", "quiet_until")
    if least_risk not in Risk.values:
        raise Refused("invalid", "Choose one of the risks that are offered.", "least_risk")
    quiet_from, quiet_until = quiet or (None, None)
    Preferences.objects.update_or_create(
        user=user,
        defaults={
            "notifications": kept,
            "least_risk": least_risk,
            "quiet_from": quiet_from,
            "quiet_until": quiet_until,
            "shows_arguments": shows_arguments,
        },
    )


def wanting(kind: str) -> dict[int, str]:
    """The people who are told of this kind by mail because they said so, each with the least risk they are told of.

    For what is not mailed by itself.
    """
    asked = Preferences.objects.filter(notifications__has_key=kind)
    found = asked.values_list("user_id", "notifications", "least_risk")
    return {user_id: least for user_id, chosen, least in found if MAIL in chosen[kind]}


def manners(user_ids: Iterable[int]) -> dict[int, Manners]:
    """How each of these people wants to be told. What `approvals` knows of preferences."""
    users = list(user_ids)
    rows = {row.user_id: row for row in Preferences.objects.filter(user__in=users)}
    return {user_id: manners_of(rows.get(user_id) or Preferences(user_id=user_id)) for user_id in users}


def manners_of(row: Preferences) -> Manners:
    """The same of one person, from what they have set."""
    mailed = frozenset(kind for kind in DEFAULTS if MAIL in ways(row, kind))
    quiet = (row.quiet_from, row.quiet_until) if row.quiet_from and row.quiet_until else None
    return Manners(mailed, quiet, row.shows_arguments, row.least_risk)


def save_view(user: User, page: str, name: str, query: str) -> SavedView:
    """Keep the filters of a list under a name."""
    name = storable(name.strip())
    if not name or len(name) > _NAME:
        raise Refused("invalid", f"Give the view a name of up to {_NAME} characters.", "name")
    if len(query) > _QUERY:
        raise Refused("invalid", "These filters are too long to keep.", "query")
    if SavedView.objects.filter(user=user, page=page).count() >= MAX_VIEWS:
        raise Refused("too_many", f"{MAX_VIEWS} views are the most. Delete one first.", "name")
    try:
        with transaction.atomic():
            return SavedView.objects.create(user=user, page=page, name=name, query=query)
    except IntegrityError as error:
        raise Refused("exists", f"You have a view named {name!r} already.", "name") from error


def delete_view(user: User, view_id: uuid.UUID) -> bool:
    """Forget a view. False: it is not there, or not theirs."""
    return bool(SavedView.objects.filter(user=user, pk=view_id).delete()[0])
