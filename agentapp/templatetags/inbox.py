"""What a row of the inbox needs to know about its request."""

from urllib.parse import urlencode

from django import template
from django.utils import timezone

from agentapp.console import formats, queue
from agentapp.console.filters import Filters
from approvals.models import Approval, Claim

register = template.Library()


@register.filter
def holder(row: Approval) -> Claim | None:
    """Who looks after it, if that still counts."""
    return queue.holder(row)


@register.filter
def waits(row: Approval) -> bool:
    """Whether somebody can still decide about it."""
    return row.state in Approval.UNDECIDED


# What a row says before one opens the request, by the fact that raised its risk.
_MARKS = {
    "outside": ("globe", "Holds values from outside"),
    "disguised": ("eye", "Holds hidden characters or look-alike letters"),
}


@register.filter
def marks(row: Approval) -> list[tuple[str, str]]:
    """Icons and words of what to beware of in a request."""
    return [_MARKS[factor["name"]] for factor in row.risk_factors if factor.get("name") in _MARKS]


@register.filter
def over_target(row: Approval) -> str:
    """How long it is past its target without a decision. Empty: the target has not passed, or there is none."""
    now = timezone.now()
    return formats.over(row.target_at, now) if row.target_at is not None and row.target_at <= now else ""


@register.filter
def part(filters: Filters, name: str) -> str:
    """One part of the filters, by its name."""
    return str(getattr(filters, name, ""))


@register.filter
def narrowed(group: dict[str, str]) -> str:
    """The address of the list of requests that a storm counts together."""
    return "?" + urlencode({name: group[name] for name in ("tool", "rule", "agent") if group[name]} | {"all": "1"})
