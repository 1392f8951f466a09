"""What a simulation found, in words. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# What became of a call, in a word.
_VERDICTS = {"allow": "runs", "ask": "asks", "deny": "is refused", "unknown": "not known"}


@dataclass(frozen=True)
class Call:
    """One call that would have turned out differently. It has no address if this person may not see its run."""

    tool: str
    at: datetime
    before: str
    after: str
    reason: str
    since_then: bool
    url: str

    @classmethod
    def read(cls, kept: Mapping[str, Any], url: str) -> "Call":
        return cls(
            tool=kept["tool"],
            at=datetime.fromisoformat(kept["at"]),
            before=_VERDICTS.get(kept["before"], kept["before"]),
            after=_VERDICTS.get(kept["after"], kept["after"]),
            reason=kept["reason"],
            since_then=kept["since_then"],
            url=url,
        )


def headline(numbers: Mapping[str, Any]) -> list[str]:
    """What would have been different, one sentence each; the first says how much was looked at."""
    looked_at, days = numbers["looked_at"], numbers["days"]
    scope = f"The latest {looked_at} calls" if numbers["cut"] else _number(looked_at, "call")
    said = [f"{scope} of the last {days} days looked at{', and not those before them' if numbers['cut'] else ''}."]
    if not looked_at:
        return [f"No call of the last {days} days falls under this rule, before or after the change."]
    changes = [
        _more_and_fewer(numbers["more_ask"], numbers["fewer_ask"], "ask"),
        _more_and_fewer(numbers["more_refused"], numbers["fewer_refused"], "be refused"),
        _more_and_fewer(numbers["more_run"], numbers["fewer_run"], "run without a person"),
    ]
    said += [change for change in changes if change]
    if not numbers["changed"]:
        said.append("None would be ruled on differently.")
    if numbers["other_terms"]:
        said.append(
            f"{_number(numbers['other_terms'], 'call')} would ask on other terms: other people, times, risk or rights."
        )
    if numbers["since_then"]:
        said.append(f"{numbers['since_then']} of these would turn out so under today's rules, without this draft.")
    if numbers["unknown"]:
        said.append(f"For {_number(numbers['unknown'], 'call')} nobody knows: it depends on what was not kept.")
    # Older simulations did not count them.
    if failed := numbers.get("failed", 0):
        of = _number(numbers["about"], "call")
        said.append(
            f"The condition could not be evaluated for {failed} of {of} it is about; such a call asks a person."
        )
    if numbers["unreadable"]:
        said.append(f"{_number(numbers['unreadable'], 'call')} can no longer be read.")
    return said


def _more_and_fewer(more: int, fewer: int, what: str) -> str:
    if more and fewer:
        return f"{more} more would {what}, {fewer} fewer."
    return f"{more} more would {what}." if more else f"{fewer} fewer would {what}." if fewer else ""


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
