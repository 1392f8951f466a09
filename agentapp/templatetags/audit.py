"""Filters that only the pages of the audit trail need."""

from datetime import UTC, datetime

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agentapp.audit.query import Query
from agentapp.console import formats, judged
from agentapp.console.audit import address
from agentapp.console.audit_rows import Line

register = template.Library()


@register.filter
def who_url(line: Line, asked: Query) -> str:
    """The same query, for this person or agent only."""
    return address(str(asked.with_value(line.who.word, line.who.typed)))


@register.filter
def did_url(line: Line, asked: Query) -> str:
    return address(str(asked.with_value("did", line.deed.word)))


@register.filter
def typeset(sentence: str) -> SafeString:
    """A sentence whose parts in backticks, which can be typed, are set as code."""
    pieces = [formats.visible(piece) for piece in sentence.split("`")]
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", piece) if at % 2 else piece,) for at, piece in enumerate(pieces))
    )


@register.filter
def utc_moment(at: datetime) -> str:
    """A moment as in the record: to the millisecond, in UTC."""
    utc = at.astimezone(UTC)
    return f"{utc:%-d %b %Y, %H:%M:%S}.{utc.microsecond // 1000:03d} UTC"


@register.filter
def short_hash(digest: str) -> str:
    return f"{digest[:4]}…{digest[-4:]}"


@register.filter
def judged_url(line: Line, asked: Query) -> str:
    return address(str(asked.with_value("judged", line.mark)))


@register.filter
def mark_hue(mark: str) -> str:
    return judged.hue(mark)
