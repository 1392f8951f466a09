"""Glyphs, avatars and the filters every console page shares.

A status or a risk is a shape and a word first; its colour comes third.
"""

import json
import zlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.contrib.auth.models import AbstractUser
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from agentapp.console import formats
from agentapp.console.differences import pretty
from agentapp.models import ToolExecution
from approvals import detectors, lens
from approvals.masking import masked_lines
from approvals.models import Approval

register = template.Library()

# A page is fetched again with each change, so it must not hold a very long text.
MAX_SHOWN = 20_000

_TICK = '<circle class="solid" cx="8" cy="8" r="6.3"/><path class="mark" d="m5.3 8.2 1.9 1.9 3.6-3.8"/>'
_RING = '<circle cx="8" cy="8" r="5.5"/>'
_QUEUED = '<circle cx="8" cy="8" r="5.5" stroke-dasharray="2.2 2.4"/>'
_RUNNING = '<circle cx="8" cy="8" r="5.5" opacity=".28"/><path class="spin" d="M8 2.5A5.5 5.5 0 0 1 13.5 8"/>'
_BEGUN = f'{_RING}<path d="M6.8 5.7 10.2 8l-3.4 2.3z"/>'
_WAITING = '<path class="solid" d="M8 1.3 14.7 8 8 14.7 1.3 8z"/><path class="mark" d="M8 5v3.3M8 10.7v.1"/>'
_OCTAGON = (
    '<path class="solid" d="M5.3 1.8h5.4l3.5 3.5v5.4l-3.5 3.5H5.3l-3.5-3.5V5.3z"/>'
    '<path class="mark" d="m6 6 4 4M10 6l-4 4"/>'
)
_PENCIL = f'{_RING}<path d="M9.6 5.4 10.8 6.6 7.4 10l-1.7.4.4-1.7z"/>'
_CROSS = f'{_RING}<path d="m6 6 4 4M10 6l-4 4"/>'
_SLASH = f'{_RING}<path d="m4.3 11.7 7.4-7.4"/>'
_PAUSE = f'{_RING}<path d="M6.3 5.8v4.4M9.7 5.8v4.4"/>'
_SPEECH = f'{_RING}<path d="M5.5 6.8h5M5.5 9.2h3"/>'
_QUESTION = (
    '<path class="solid" d="M8 1.3 14.7 8 8 14.7 1.3 8z"/>'
    '<path class="mark" d="M6.7 6.4a1.4 1.4 0 1 1 2 1.4c-.5.3-.7.5-.7.9M8 10.9v.1"/>'
)

_ASKED = f'{_RING}<path d="M6.7 6.4a1.4 1.4 0 1 1 2 1.4c-.5.3-.7.5-.7.9M8 10.9v.1"/>'

# State of a run, a call or an approval → hue, drawing, word.
_STATUS: dict[str, tuple[str, str, str]] = {
    "queued": ("", _QUEUED, "Queued"),
    "proposed": ("", _QUEUED, "Proposed"),
    "ready": ("", _QUEUED, "Ready"),
    "running": ("run", _RUNNING, "Running"),
    "executing": ("run", _RUNNING, "Running"),
    # It began once, but is not running now: nothing turns.
    "begun": ("run", _BEGUN, "Begun"),
    "waiting": ("wait", _WAITING, "Waiting"),
    "pending": ("wait", _WAITING, "Waiting for a decision"),
    "asked": ("wait", _ASKED, "Waiting for an answer"),
    "outcome_unknown": ("wait", _QUESTION, "Outcome unknown"),
    "paused": ("wait", _PAUSE, "Paused"),
    "succeeded": ("ok", _TICK, "Succeeded"),
    "finished": ("ok", _TICK, "Finished"),
    "ok": ("ok", _TICK, "OK"),
    "approved": ("ok", _TICK, "Approved"),
    "used": ("ok", _TICK, "Approved"),
    "edited": ("ok", _PENCIL, "Approved with changes"),
    "responded": ("ok", _SPEECH, "Answered by a person"),
    "failed": ("bad", _OCTAGON, "Failed"),
    "fatal_error": ("bad", _OCTAGON, "Failed"),
    "retryable_error": ("bad", _OCTAGON, "Failed"),
    "rejected": ("bad", _CROSS, "Rejected"),
    "refused": ("bad", _CROSS, "Refused"),
    "stopped": ("", _SLASH, "Stopped"),
    "cancelled": ("", _SLASH, "Cancelled"),
    "expired": ("", _SLASH, "Expired"),
    "withdrawn": ("", _SLASH, "Withdrawn"),
    "superseded": ("", _SLASH, "Replaced"),
}
_BARS = ((2, 9.5, 4.5), (6.5, 6, 8), (11, 2.5, 11.5))
_RISK_BARS = {"low": 1, "medium": 2, "high": 3}


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """One symbol of the sprite, silent for screen readers: the words are next to it."""
    return format_html(
        '<svg class="icon{}" aria-hidden="true"><use href="#i-{}"/></svg>', f" {classes}" if classes else "", name
    )


@register.simple_tag
def status_glyph(state: str, labelled: bool = False) -> SafeString:
    """The shape of a state. `labelled` gives it its word, if no word is next to it."""
    hue, drawing, word = _STATUS.get(str(state), ("", _RING, str(state).replace("_", " ")))
    return _glyph(f"st {hue}".strip(), drawing, word if labelled else "")


@register.simple_tag
def status_word(state: str) -> str:
    """The word for a state, shown next to its glyph."""
    return _STATUS.get(str(state), ("", "", str(state).replace("_", " ")))[2]


@register.simple_tag
def status_hue(state: str) -> str:
    """The class of a state's badge: ok, wait, bad, info or nothing."""
    return {"run": "info"}.get(hue := _STATUS.get(str(state), ("", "", ""))[0], hue)


@register.simple_tag
def risk(level: str, labelled: bool = False) -> SafeString:
    """One to three bars, or the filled square of a critical risk."""
    level = str(level)
    if level == "critical":
        drawing = (
            '<rect class="on" x="1.5" y="1.5" width="13" height="13" rx="3"/>'
            '<path class="mark" d="M8 4.5v4.3M8 11.3v.1"/>'
        )
    else:
        lit = _RISK_BARS.get(level, 0)
        drawing = "".join(
            f"<rect{' class=' + chr(34) + 'on' + chr(34) if number < lit else ''} "
            f'x="{x}" y="{y}" width="3" height="{height}" rx="1"/>'
            for number, (x, y, height) in enumerate(_BARS)
        )
    return _glyph(f"risk {level}", drawing, f"{level.capitalize()} risk" if labelled else "")


@register.simple_tag
def risk_hue(level: str) -> str:
    """The class of a risk's badge."""
    return {"medium": "wait", "high": "bad", "critical": "bad"}.get(str(level), "")


@register.simple_tag
def avatar(who: AbstractUser | str | None, large: bool = False) -> SafeString:
    """Initials in a round mark for a person, in a square one for a machine (given by its name)."""
    machine = not isinstance(who, AbstractUser)
    name = str(who or "?") if machine else person(who)
    letters = [word[0] for word in name.replace("-", " ").replace("_", " ").split() if word]
    initials = formats.visible("".join(letters[:1] if machine else letters[:1] + letters[1:][-1:])).upper() or "?"
    hue = zlib.crc32(name.encode()) % 5 + 1
    classes = f"avatar a{hue}{' bot' if machine else ''}{' lg' if large else ''}"
    return format_html('<span class="{}" aria-hidden="true">{}</span>', classes, initials)


@register.filter
def person(user: Any) -> str:
    """A person's name as everybody reads it. None is the system."""
    if user is None:
        return "The system"
    return str(user.get_full_name() or user.get_username())


@register.filter
def visible(text: object) -> str:
    """For every text that people or outside programs wrote: it makes hidden characters visible."""
    return "" if text is None else formats.visible(text)


@register.filter
def listed(texts: Iterable[object]) -> str:
    """`visible`, for several texts, with commas between them. `join` would escape them, and the page once more."""
    return ", ".join(map(formats.visible, texts))


@register.filter(is_safe=True)
def shortened(text: object, most: int) -> str:
    """The beginning of a text, but never part of a value that would be masked: once cut, it would not be recognised."""
    return "" if text is None else detectors.shortened(str(text), most)


@register.filter
def at_length(text: object) -> str:
    """`visible`, for what may be very long: as much as a page holds, and how much there is in all."""
    whole = "" if text is None else str(text)
    if len(whole) <= MAX_SHOWN:
        return formats.visible(whole)
    note = f"The first {MAX_SHOWN:,} of {len(whole):,} characters; the record has all of them."
    return format_html('{} <span class="block t3">{}</span>', formats.visible(shortened(whole, MAX_SHOWN)), note)


@register.filter
def duration(value: timedelta | float | None) -> str:
    return formats.duration(value)


@register.filter
def money(value: object) -> str:
    return formats.money(value)


@register.filter
def ago(then: datetime | None) -> str:
    return formats.ago(then) if then else "—"


@register.filter
def time_left(until: datetime | None, over: str = "time is up") -> str:
    """`over`: what it says at the end; `data-over` gives it to the script that counts down."""
    return formats.time_left(until, timezone.now(), over) if until else "—"


@register.filter
def time_of_day(at: datetime | None) -> SafeString | str:
    """A local time, with the exact UTC moment in its tooltip."""
    if at is None:
        return "—"
    local, today = timezone.localtime(at), timezone.localdate()
    shown = local.strftime("%H:%M:%S") if local.date() == today else local.strftime("%-d %b, %H:%M")
    utc = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), utc, shown)


@register.filter
def split(words: str) -> list[str]:
    return words.split()


@register.filter
def words(name: str) -> str:
    """A slug as words: refunds-over-limit reads "refunds over limit"."""
    return str(name).replace("-", " ").replace("_", " ")


@register.filter
def due_class(until: datetime) -> str:
    """How loudly a deadline is shown: nothing, soon (a quarter of an hour), now (five minutes)."""
    left = until - timezone.now()
    return "now" if left < timedelta(minutes=5) else "soon" if left < timedelta(minutes=15) else ""


@register.filter
def ended_as(approval: Approval) -> str:
    """The glyph of a request that has ended: what people decided, and what became of the call."""
    if approval.state != Approval.State.USED:
        return "edited" if approval.state == Approval.State.APPROVED and approval.is_edited else approval.state
    execution = getattr(approval, "execution", None)
    if execution is not None and execution.result_status not in ("", ToolExecution.ResultStatus.OK):
        return "failed"
    return "edited" if approval.is_edited else "approved"


@register.filter
def ended_by(approval: Approval) -> str:
    """Who ended a request and how, in three words."""
    last = next(reversed(approval.decisions.all()), None)
    word = {"rejected": "Rejected", "responded": "Answered", "approved": "Approved", "used": "Approved"}.get(
        approval.state
    )
    if word is None or last is None:
        return str(approval.get_state_display())
    by = "the customer" if last.user is None else last.user.first_name or last.user.get_username()
    lender = last.on_behalf_of
    by = f"{by} for {lender.first_name or lender.get_username()}" if lender is not None else by
    return f"{word} by {by}"


@register.filter
def executed_arguments(execution: ToolExecution) -> str:
    """The arguments a call ran with, secrets masked."""
    secret = lens.hidden(execution.all_secret_fields, execution.all_pii_fields)
    return pretty(execution.executed_text or execution.arguments_text, secret)


@register.filter
def difference_shown(approval: Approval) -> list[dict[str, Any]]:
    """What has changed since people were last asked, without what the reader may not see."""
    return masked_lines(approval.difference, lens.hidden(approval.secret_fields, approval.pii_fields))


@register.filter
def json_kind(value: object) -> str:
    """The class of a value in a JSON tree."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "b" if value is None or isinstance(value, bool) else "n" if isinstance(value, int | float) else "s"


@register.filter
def numbered(values: list[Any]) -> dict[int, Any]:
    return dict(enumerate(values))


@register.filter
def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _glyph(classes: str, drawing: str, word: str) -> SafeString:
    label = format_html('role="img" aria-label="{}"', word) if word else mark_safe('aria-hidden="true"')
    return format_html('<svg class="{}" viewBox="0 0 16 16" {}>{}</svg>', classes, label, mark_safe(drawing))  # noqa: S308
