"""An import that a person has begun but not finished: the only writer of PendingImport.

A document is kept here, not in a page, between reading it and importing what was picked from it.
"""

import uuid
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from celery import shared_task
from django.contrib.auth.models import User

from agentapp.importing import planning, writing
from agentapp.importing.planning import Choice, Given, Plan, Proposed
from agentapp.importing.writing import Imported
from agentapp.models import PendingImport
from agentapp.refused import Refused
from approvals.clock import Now

LASTS = timedelta(hours=2)
# How much of a changed part of a contract is shown on either side.
_MAX_PART_CHARS = 20_000


def keep(given: Given, user: User) -> PendingImport:
    """Read a document and keep it for its reader to pick from. Raises Refused."""
    text = given.text if isinstance(given.text, str) else _decoded(given.text)
    planned = planning.plan(given)
    forget()
    return PendingImport.objects.create(
        user=user,
        created_at=Now(),
        text=text,
        name=planned.source.name,
        location=planned.source.location,
        origin=given.origin,
        prefix=given.prefix,
        checks_answers=planned.source.details["checks_answers"],
        summary=_summary(planned),
        listing=[_listed(one) for one in planned.proposed],
        choices={key: _as_row(choice) for key, choice in planning.preset(planned).items()},
    )


@shared_task
def forget() -> None:
    """Delete imports that nobody has finished."""
    PendingImport.objects.filter(created_at__lt=Now() - LASTS).delete()


def find(key: uuid.UUID, user: User) -> PendingImport | None:
    """The user's own import, while it lasts. Its text is not fetched with it."""
    own = PendingImport.objects.filter(user=user, created_at__gte=Now() - LASTS)
    return own.defer("text").filter(pk=key).first()


def choose(pending: PendingImport, shown: Collection[str], ticked: Mapping[str, Choice]) -> None:
    """Of the operations that were shown, pick exactly those ticked. Others stay as they were."""
    kept = {key: choice for key, choice in pending.choices.items() if key not in shown}
    pending.choices = kept | {key: _as_row(choice) for key, choice in ticked.items()}
    pending.save(update_fields=["choices"])


def take(pending: PendingImport, actor: str, named: Mapping[str, str]) -> Imported:
    """Import what was picked. If it raises Refused, the document is still there."""
    given = Given(pending.text, pending.name, pending.location, pending.origin, pending.prefix, pending.checks_answers)
    if not pending.choices:
        raise Refused("nothing_chosen", "Pick at least one operation.")
    chosen = {key: Choice(row["name"], row["effect"]) for key, row in pending.choices.items()}
    done = writing.write(planning.plan(given), chosen, actor, named)
    pending.delete()
    return done


def give_up(pending: PendingImport) -> None:
    pending.delete()


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused("document_refused", "The document is not UTF-8 text.", "document") from error


def _summary(planned: Plan) -> dict[str, Any]:
    return {
        "title": planned.document.title,
        "version": planned.document.version,
        "is_new": planned.is_new,
        "left_out": list(planned.document.left_out.items()),
        "gone": [tool.name for tool in planned.gone],
        "schemes": planned.schemes,
        "credentials": planned.source.credentials,
    }


def _listed(one: Proposed) -> dict[str, Any]:
    """What people see of an operation while they pick."""
    operation = one.operation
    return {
        "key": one.key,
        "method": operation.method.upper(),
        "path": operation.path,
        "name": one.tool.name,
        "effect": one.effect_class,
        "summary": operation.summary,
        "tags": list(operation.tags),
        "deprecated": operation.deprecated,
        "arguments": len(operation.places),
        "needed": len(operation.input_schema["required"]),
        "state": one.state,
        "is_tool": one.row is not None,
        "parts": [(label, was[:_MAX_PART_CHARS], now[:_MAX_PART_CHARS]) for label, was, now in one.parts],
    }


def _as_row(choice: Choice) -> dict[str, str]:
    return {"name": choice.name, "effect": choice.effect_class}
