"""What the page of a guideline shows next to its settings: what each version changed."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.safestring import SafeString

from agentapp.admin.parts import part
from agentapp.models import Guideline
from approvals import changes
from approvals.changes import Field
from approvals.digest import canonical

MAX_VERSIONS = 10


@dataclass(frozen=True)
class Version:
    """One change that made a new version: its number, and its columns as JSON before and after."""

    at: datetime
    who: str
    number: int
    parts: list[tuple[str, str, str]]


def versions(guideline: Guideline) -> SafeString:
    """What each version changed, latest first."""
    found = [
        Version(change.at, change.who, new.after, [_part(field) for field in change.fields if field != new])
        for change in changes.of(guideline)
        if change.what == "changed" and (new := change.of("version")) is not None
    ]
    return part("guideline_versions", {"versions": found[:MAX_VERSIONS]})


def _part(field: Field) -> tuple[str, str, str]:
    return field.label, canonical(field.before), canonical(field.after)
