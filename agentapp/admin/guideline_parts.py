"""What the page of a guideline shows beside its settings: what each version changed."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.safestring import SafeString

from agentapp.admin.parts import part
from agentapp.models import Guideline
from approvals import changes
from approvals.changes import Field

MAX_VERSIONS = 10


@dataclass(frozen=True)
class Version:
    """One change that made a new version."""

    at: datetime
    who: str
    number: int
    fields: list[Field]


def versions(guideline: Guideline) -> SafeString:
    """What each version changed, latest first."""
    found = [
        Version(change.at, change.who, new.after, [field for field in change.fields if field.name != "version"])
        for change in changes.of(guideline)
        if change.what == "changed" and (new := change.of("version")) is not None
    ]
    return part("guideline_versions", {"versions": found[:MAX_VERSIONS]})
