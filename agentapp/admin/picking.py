"""The page for picking operations of a document: what it shows, and what came back from it.

Long documents are shown page by page. What is picked on one is noted before the next is shown, even without script.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from agentapp.contracts import is_weaker
from agentapp.importing import pending
from agentapp.importing.planning import Choice
from agentapp.models import PendingImport
from agentapp.tools.credentials import NAME
from approvals.digest import storable
from approvals.models import EffectClass, Risk
from approvals.policy import DEFAULT_RISK

PER_PAGE = 100
# Longer than any name that is accepted, so that a long one is refused and not cut.
_MAX_NAME = 200
STATES = {"new": "New", "changed": "Changed", "same": "Unchanged", "picked": "Picked"}


@dataclass(frozen=True)
class Row:
    """One operation as the page shows it."""

    number: int
    said: dict[str, Any]
    choice: dict[str, str] | None

    @property
    def name(self) -> str:
        return str((self.choice or self.said)["name"])

    @property
    def effect(self) -> str:
        return str((self.choice or self.said)["effect"])

    @property
    def effects(self) -> list[tuple[str, str]]:
        """Those that may be chosen: an import never makes an effect class weaker."""
        return [
            (value, str(label).partition(":")[0])
            for value, label in EffectClass.choices
            if not is_weaker(value, self.said["effect"])
        ]

    @property
    def risk(self) -> Risk:
        return DEFAULT_RISK[EffectClass(self.effect)]

    @property
    def state(self) -> str:
        return STATES[self.said["state"]]


class Picking:
    """A kept document, seen through a search. `sent` is the query of the page, or the form that was posted."""

    def __init__(self, kept: PendingImport, sent: QueryDict) -> None:
        self.kept, self._sent = kept, sent
        self.q, self.tag = sent.get("q", "")[:200].strip(), sent.get("tag", "")
        self.state = sent.get("state", "") if sent.get("state", "") in STATES else ""

    # --- What is shown -------------------------------------------------------------------------

    @cached_property
    def tags(self) -> list[str]:
        return sorted({tag for one in self.kept.listing for tag in one["tags"]})

    @property
    def states(self) -> dict[str, str]:
        return STATES

    @cached_property
    def fitting(self) -> list[Row]:
        """Every operation that fits the search."""
        choices = self.kept.choices
        rows = [Row(number, said, choices.get(said["key"])) for number, said in enumerate(self.kept.listing)]
        return [row for row in rows if self._fits(row)]

    def _fits(self, row: Row) -> bool:
        said = row.said
        text = f"{said['key']} {row.name} {said['summary']}".lower()
        if not all(word in text for word in self.q.lower().split()) or (self.tag and self.tag not in said["tags"]):
            return False
        return self.state in ("", said["state"]) or (self.state == "picked" and row.choice is not None)

    @cached_property
    def pages(self) -> int:
        return max(1, -(-len(self.fitting) // PER_PAGE))

    @cached_property
    def page(self) -> int:
        wanted = self._sent.get("page", "1")
        wanted = self._sent.get("do", "").removeprefix("page-") if "page-" in self._sent.get("do", "") else wanted
        return min(max(1, _number(wanted) or 1), self.pages)

    @property
    def rows(self) -> list[Row]:
        return self.fitting[(self.page - 1) * PER_PAGE : self.page * PER_PAGE]

    @property
    def schemes(self) -> list[tuple[str, str]]:
        """Each security scheme of the service, with the credential named for it."""
        named = self.kept.summary["credentials"]
        return [
            (scheme, self._sent.get(f"credential-{scheme}", named.get(scheme, "")))
            for scheme in self.kept.summary["schemes"]
        ]

    @property
    def left_out(self) -> list[tuple[str, str]]:
        return [(place, why) for place, why in self.kept.summary["left_out"]]

    def query(self) -> str:
        """The same search as a query string; a new search begins on its first page."""
        page = self.page if self._sent.get("do") not in ("search", "") else 1
        # Somebody may have typed a secret in place of a name: it must not end up in an address.
        credentials = {f"credential-{scheme}": name for scheme, name in self.schemes if NAME.fullmatch(name.strip())}
        said = {"q": self.q, "tag": self.tag, "state": self.state, "page": page if page > 1 else "", **credentials}
        return urlencode({name: value for name, value in said.items() if value})

    # --- What came back ------------------------------------------------------------------------

    @property
    def credentials(self) -> dict[str, str]:
        return {scheme: name.strip() for scheme, name in self.schemes if name.strip()}

    def note(self) -> str:
        """Keep what was picked on this page, or everything that fits. Returns what is wrong with it, if anything."""
        shown = {}
        for number in self._sent.getlist("shown"):
            place = _number(number)
            if place is not None and place < len(self.kept.listing):
                shown[number] = self.kept.listing[place]
        ticked = {
            said["key"]: Choice(
                storable(self._sent.get(f"name-{number}", said["name"]).strip()[:_MAX_NAME]),
                self._sent.get(f"effect-{number}", said["effect"]),
            )
            for number, said in shown.items()
            if f"take-{number}" in self._sent
        }
        for said in shown.values():
            choice = ticked.get(said["key"])
            if choice and choice.effect_class not in EffectClass.values:
                return f"{said['key']}: {choice.effect_class[:40]!r} is not an effect class."
        pending.choose(self.kept, {said["key"] for said in shown.values()}, ticked)
        match self._sent.get("do"):
            case "all":
                rest = {row.said["key"]: Choice(row.name, row.effect) for row in self.fitting if not row.choice}
                pending.choose(self.kept, rest, rest)
            case "none":
                pending.choose(self.kept, {row.said["key"] for row in self.fitting}, {})
        self.__dict__.pop("fitting", None)
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
