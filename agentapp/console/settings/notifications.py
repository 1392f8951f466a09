"""What somebody is told about, and how; and a test of whether each way works."""

from collections.abc import Sequence
from datetime import time
from http import HTTPStatus

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from agentapp import preferences
from agentapp.console.settings.sections import NOTIFICATIONS, page, saved
from agentapp.console.shell import signed_in
from agentapp.models import Preferences
from agentapp.refused import Refused
from approvals import people, sending
from approvals.channels.base import ChannelError
from approvals.manners import AT_ONCE, CHAT
from approvals.models import Channel, Notification, Risk

Kind = Notification.Kind
ROWS = (
    (Kind.WAITING, "A request waits for my team"),
    (Kind.HANDED, "A request was handed to me"),
    (Kind.DUE_SOON, "A request of mine is due soon"),
    (Kind.FAILED, "A call failed that I approved"),
    (Kind.ANSWERED, "My question was answered"),
    (Kind.REMINDED, "A request for my team still waits"),
    (Kind.ESCALATED, "My team may decide a request now, too"),
    (Kind.MENTIONED, "Somebody mentions me in a comment"),
)
TESTED = "tested"


@require_http_methods(["GET", "HEAD", "POST"])
def notifications(request: HttpRequest) -> HttpResponse:
    user, refused, typed = signed_in(request), None, None
    chat = people.personal_channel()
    if request.method == "POST":
        try:
            ways, quiet = _chosen(request.POST, user, chat), _quiet(request.POST)
            least = request.POST.get("least_risk", Risk.LOW)
            reach = _reach(request.POST, user, chat)
            preferences.set_notifications(user, ways, quiet, "shows" in request.POST, least, reach)
        except Refused as error:
            refused, typed = error, request.POST
        else:
            return saved(request, NOTIFICATIONS)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refused else HTTPStatus.OK
    tested = [each.message for each in messages.get_messages(request) if each.extra_tags == TESTED]
    return page(request, NOTIFICATIONS, _context(user, chat, typed) | {"refused": refused, "tested": tested}, status)


@require_POST
def test(request: HttpRequest) -> HttpResponse:
    """Send a test message to oneself, and say for each way what happened. The browser's test is left to its script."""
    user = signed_in(request)
    said = [_mail_tested(user)]
    chat = people.personal_channel()
    if chat is not None:
        said.append(_chat_tested(user, chat))
    for line in said:
        messages.info(request, line, extra_tags=TESTED)
    return redirect(NOTIFICATIONS.url)


def _mail_tested(user: User) -> str:
    if not user.email:
        return "Mail: not sent. Your profile has no address."
    try:
        sending.send_test(user)
    except ChannelError as error:
        return f"Mail: not sent. {error}"
    return f"Mail: the mail server accepted it for {user.email}."


def _chat_tested(user: User, chat: Channel) -> str:
    name = preferences.of(user).chat_name
    if not name:
        return "Chat: not sent. Give your name there, and save it."
    try:
        sending.send_chat_test(user, chat)
    except ChannelError as error:
        return f"Chat: not sent. {error}"
    return f"Chat: {chat.name} accepted it for {name}."


def _ways(chat: Channel | None) -> list[str]:
    """The ways on offer. Chat is among them if there is a channel for individual people."""
    return [way for way in preferences.WAYS if way != CHAT or chat is not None]


def _chosen(form: QueryDict, user: User, chat: Channel | None) -> dict[str, list[str]]:
    offered, before = _ways(chat), preferences.of(user)
    kept = {kind: [way for way in preferences.ways(before, kind) if way not in offered] for kind, _ in ROWS}
    return {kind: [way for way in offered if f"{kind}-{way}" in form] + kept[kind] for kind, _ in ROWS}


def _quiet(form: QueryDict) -> tuple[time, time] | None:
    begin, end = form.get("quiet_from", ""), form.get("quiet_until", "")
    if not begin and not end:
        return None
    try:
        return _time_of_day(begin), _time_of_day(end)
    except ValueError as error:
        raise Refused("invalid", "Quiet hours need two times, as in 22:00 and 07:00.", "quiet_from") from error


def _time_of_day(text: str) -> time:
    """A time as on a clock. Raises ValueError, also for a time with an offset from UTC."""
    found = time.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError("a time of the day has no offset")
    return found


def _reach(form: QueryDict, user: User, chat: Channel | None) -> preferences.Reach:
    at = form.get("rhythm_at", "")
    try:
        moment = _time_of_day(at) if at else None
    except ValueError as error:
        raise Refused("invalid", "Give the time of day as in 08:00.", "rhythm_at") from error
    # A way that is not offered keeps its settings.
    name = form.get("chat_name", "").strip() if chat is not None else preferences.of(user).chat_name
    return preferences.Reach(name, form.get("rhythm", AT_ONCE), moment, "follow_ups" in form)


def _context(user: User, chat: Channel | None, typed: QueryDict | None) -> dict[str, object]:
    """What the form shows: what was typed if it could not be saved, else what is stored."""
    chosen = preferences.of(user)
    ways = _ways(chat)

    def ticked(kind: str) -> Sequence[str]:
        if typed is None:
            return preferences.ways(chosen, kind)
        return [way for way in ways if f"{kind}-{way}" in typed]

    risks = [
        (Risk.LOW, "Any"),
        *((risk, f"{risk.label} or higher") for risk in (Risk.MEDIUM, Risk.HIGH)),
        (Risk.CRITICAL, "Critical"),
    ]
    rows = [
        {"kind": kind, "words": words, "ways": [(way, way in ticked(kind)) for way in ways]} for kind, words in ROWS
    ]
    form = _stored(chosen) if typed is None else typed.dict() | {box: box in typed for box in ("shows", "follow_ups")}
    return {"form": form, "rows": rows, "risks": risks, "chat": chat, "rhythms": Preferences.Rhythm.choices}


def _stored(chosen: Preferences) -> dict[str, object]:
    """What is stored, by the names of the form's fields."""
    times = {name: getattr(chosen, name) for name in ("quiet_from", "quiet_until", "rhythm_at")}
    shown = {name: f"{value:%H:%M}" if value is not None else "" for name, value in times.items()}
    names = ("least_risk", "rhythm", "chat_name", "follow_ups")
    return {**shown, **{name: getattr(chosen, name) for name in names}, "shows": chosen.shows_arguments}
