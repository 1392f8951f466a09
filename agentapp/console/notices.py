"""What a browser tells its user while the inbox is in a hidden tab: waiting requests, and news meant for them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from agentapp import auth, preferences
from agentapp.console import formats, queue
from agentapp.console.shell import signed_in
from agentapp.messages import FAILED
from agentapp.models import Preferences, ToolExecution
from approvals import claims, comments, follow_ups
from approvals.clock import Now
from approvals.ids import least_at
from approvals.manners import quiet_until
from approvals.models import Approval, Comment, Decision, DecisionType, Notification, Question
from approvals.people import DUE_SOON
from approvals.policy import risks_from

Kind = Notification.Kind
NEWEST = 20
# A page tells only what is new to it, so it need not be given anything older.
LATELY = timedelta(days=1)
# The words after the title, as in mail.
_WORDS: dict[str, str] = {
    Kind.WAITING: "is waiting",
    Kind.HANDED: "was handed to you",
    Kind.DUE_SOON: "is due soon",
    Kind.FAILED: "failed",
    Kind.ANSWERED: "has an answer",
    Kind.REMINDED: "still waits for your team",
    Kind.ESCALATED: "is for your team now, too",
    Kind.MENTIONED: "has a comment that mentions you",
}


@dataclass(frozen=True)
class _News:
    """One thing to tell somebody. `key` identifies it, so that it is told only once."""

    kind: str
    key: object
    approval: Approval
    body: str = ""


@require_safe
def notices(request: HttpRequest) -> JsonResponse:
    """The newest notices of each kind that this person wants here, each with what a locked screen may show."""
    user = signed_in(request)
    chosen = preferences.of(user)
    if quiet_until(preferences.manners_of(chosen), timezone.now()) is not None:
        return JsonResponse({"notices": []})
    found: dict[str, Iterable[_News]] = {}
    for kind, find in _FINDS.items():
        if preferences.BROWSER in preferences.ways(chosen, kind):
            found[kind] = find(user, chosen)
    # People for whom a request waits have already been told about it.
    waiting = {news.approval.pk for news in found.get(Kind.WAITING, ())}
    told = [
        _notice(news, chosen.shows_arguments)
        for kind, some in found.items()
        for news in some
        if kind != Kind.ESCALATED or news.approval.pk not in waiting
    ]
    return JsonResponse({"notices": told})


def _waiting(user: User, chosen: Preferences) -> list[_News]:
    rows = queue.pending(user).filter(risk__in=risks_from(chosen.least_risk)).order_by("-created_at")[:NEWEST]
    return [_News(Kind.WAITING, row.pk, row) for row in rows]


def _handed(user: User, chosen: Preferences) -> list[_News]:
    rows = _claimed(user).filter(claim__until__isnull=True).select_related("claim").order_by("-claim__claimed_at")
    return [_News(Kind.HANDED, row.claim.pk, row) for row in rows[:NEWEST]]


def _due_soon(user: User, chosen: Preferences) -> list[_News]:
    rows = _claimed(user).filter(expires_at__gt=Now(), expires_at__lte=Now() + DUE_SOON).order_by("expires_at")
    return [_News(Kind.DUE_SOON, row.pk, row) for row in rows[:NEWEST]]


def _claimed(user: User) -> QuerySet[Approval]:
    return queue.undecided(user).filter(claim__in=claims.standing().filter(user=user))


def _failed(user: User, chosen: Preferences) -> list[_News]:
    lately = timezone.now() - LATELY
    approved = auth.visible_approvals(user).filter(
        decisions__user=user, decisions__decided_at__gte=lately, decisions__undone_at__isnull=True,
        decisions__type__in=[DecisionType.APPROVE, DecisionType.EDIT],
    )  # fmt: skip
    calls = ToolExecution.objects.select_related("approval").filter(approval__in=approved, result_status__in=FAILED)
    latest = calls.order_by("-finished_at")[:NEWEST]
    return [_News(Kind.FAILED, call.pk, call.approval, "You had approved it") for call in latest if call.approval]


def _answered(user: User, chosen: Preferences) -> list[_News]:
    answered = Question.objects.exclude(answer="").filter(asker=user, closed_at__gte=timezone.now() - LATELY)
    latest = answered.filter(approval__in=queue.undecided(user)).select_related("approval").order_by("-closed_at")
    return [_News(Kind.ANSWERED, question.pk, question.approval) for question in latest[:NEWEST]]


def _reminded(user: User, chosen: Preferences) -> list[_News]:
    return [_News(Kind.REMINDED, f"{row.pk}-{number}", row) for row, number, _ in _steps(user, chosen, "remind")]


def _escalated(user: User, chosen: Preferences) -> list[_News]:
    mine = set(user.groups.values_list("pk", flat=True))
    steps = _steps(user, chosen, "group")
    return [
        _News(Kind.ESCALATED, f"{row.pk}-{number}", row) for row, number, step in steps if step.get("group_id") in mine
    ]


def _steps(user: User, chosen: Preferences, what: str) -> list[tuple[Approval, int, dict[str, Any]]]:
    """The escalation steps of this kind already taken for requests waiting in this person's sight."""
    waits = queue.pending(user).filter(escalated__gt=0, risk__in=risks_from(chosen.least_risk))
    # Those who have already decided are waiting for others.
    said = Decision.objects.filter(user=user, undone_at__isnull=True)
    rows = waits.exclude(decisions__in=said).order_by("-created_at")[:NEWEST]
    taken = ((row, enumerate(row.escalation[: row.escalated], start=1)) for row in rows)
    return [(row, number, step) for row, steps in taken for number, step in steps if step.get(what)]


def _mentioned(user: User, chosen: Preferences) -> list[_News]:
    name = user.get_username()
    lately = Comment.objects.filter(pk__gte=least_at(timezone.now() - LATELY)).exclude(author=user)
    latest = lately.filter(text__contains=f"@{name}", approval__in=auth.visible_approvals(user)).select_related(
        "approval", "author"
    )
    found = [one for one in latest.order_by("-at")[:NEWEST] if name in comments.mentioned(one.text)]
    return [_News(Kind.MENTIONED, one.pk, one.approval, f"By {auth.name_of(one.author)}") for one in found]


type _Find = Callable[[User, Preferences], Iterable[_News]]
_FINDS: dict[str, _Find] = {
    Kind.WAITING: _waiting,
    Kind.HANDED: _handed,
    Kind.DUE_SOON: _due_soon,
    Kind.FAILED: _failed,
    Kind.ANSWERED: _answered,
    Kind.REMINDED: _reminded,
    Kind.ESCALATED: _escalated,
    Kind.MENTIONED: _mentioned,
}


def _notice(news: _News, with_arguments: bool) -> dict[str, Any]:
    row, waits = news.approval, news.kind == Kind.WAITING
    if with_arguments:
        title = row.shown_title if waits else f"{row.shown_title} {_WORDS[news.kind]}"
    else:
        title = f"{row.get_risk_display()}-risk {row.tool.replace('_', ' ')} {_WORDS[news.kind]}"
    left = f"Due in {formats.time_left(row.expires_at, timezone.now())}"
    return {
        "id": str(news.key) if waits else f"{news.kind}-{news.key}",
        "title": formats.visible(title),
        "body": formats.visible(left if news.kind in follow_ups.WHILE_WAITING else news.body),
        "url": reverse("approval", args=[row.pk]),
    }
