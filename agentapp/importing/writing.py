"""A plan and what a person chose from it → rows, through the configuration chain."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError

from agentapp import contracts
from agentapp.contracts import is_weaker
from agentapp.importing.planning import Choice, Plan, stronger
from agentapp.models import Tool, ToolSource
from agentapp.refused import Refused
from agentapp.tools import base, credentials, openapi
from agentapp.tools.openapi_contract import tool_of
from approvals import configuration
from approvals.models import EffectClass

# What an import sets on its source. People decide whether it is on, which hosts it may ask, and its name.
_OWNED = ("location", "origin", "details", "schemes")


@dataclass(frozen=True)
class Imported:
    """What an import did: what changed, and how many open requests it set aside."""

    source: ToolSource
    changes: list[configuration.Change] = field(default_factory=list)
    voided: int = 0


def write(
    planned: Plan,
    chosen: Mapping[str, Choice],
    actor: str,
    named: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> Imported:
    """Make tools from the chosen operations, given by key. Tools of the source that are not chosen are marked as gone.

    `named` are credentials by scheme. If it raises Refused, it has changed nothing.
    """
    wanted = _credentials(planned, planned.source.credentials if named is None else dict(named))
    tools = [_chosen(planned, key, choice) for key, choice in chosen.items()]
    fresh = {choice.name for key, choice in chosen.items() if planned.by_key[key].row is None}
    _check_names([tool.name for tool in tools], fresh)
    try:
        with configuration.transaction(dry_run):
            source = _source(planned)
            if named is not None:
                source.credentials = wanted
            changes = [configuration.save(source, actor)]
            changes += contracts.write(source, tools, actor)
            changes += _raise_effects(planned, chosen, actor)
            listed = [tool.name for tool in tools]
            changes += contracts.mark_missing(listed, Tool.objects.filter(source=source), actor)
            voided = contracts.outdated().count()
    except ImproperlyConfigured as taken:
        raise Refused("name_taken", str(taken)) from taken
    except IntegrityError as error:
        raise Refused("name_taken", "Somebody has just imported tools with these names. Look again.") from error
    if not dry_run:
        voided = contracts.void_outdated()
    return Imported(source, [change for change in changes if change], voided)


def _source(planned: Plan) -> ToolSource:
    """The source with what the import sets. What an admin has set since the plan was made stays. Raises Refused."""
    if planned.is_new:
        return planned.source
    source = ToolSource.objects.select_for_update(of=("self",), no_key=True).filter(pk=planned.source.pk).first()
    if source is None:
        raise Refused("source_gone", f"Somebody has just deleted the source {planned.source.name}. Look again.")
    for column in _OWNED:
        setattr(source, column, getattr(planned.source, column))
    return source


def _credentials(planned: Plan, named: dict[str, str]) -> dict[str, str]:
    for scheme, name in named.items():
        if scheme not in planned.schemes:
            raise Refused("unknown_scheme", f"The document has no {scheme!r}, only {', '.join(planned.schemes)}.")
        if not credentials.NAME.fullmatch(name):
            message = f"{name[:40]!r} is not the name of a credential: capitals, digits and underscores, as in SHOP."
            raise Refused("invalid_credential", message, "credentials")
    return named


def _chosen(planned: Plan, key: str, choice: Choice) -> base.Tool:
    one = planned.by_key.get(key)
    if one is None:
        raise Refused("unknown_operation", f"The document has no operation {key[:200]}.")
    if choice.effect_class not in EffectClass.values:
        raise Refused("invalid_effect", f"{choice.effect_class[:40]!r} is not an effect class.")
    if is_weaker(choice.effect_class, one.effect_class):
        message = f"{key} counts as {one.effect_class}. An import cannot weaken that; the page of its tool can."
        raise Refused("weaker_effect", message)
    if one.row is not None:
        if choice.name != one.row.name:
            raise Refused("name_kept", f"{key} is already {one.row.name}, which rules and agents name.")
        return one.tool
    if not openapi.NAME.fullmatch(choice.name):
        raise Refused("invalid_name", f"{choice.name[:80]!r} is not a name that every model's provider accepts.")
    return tool_of(
        one.operation,
        choice.name,
        choice.effect_class,  # type: ignore[arg-type]
        planned.source.location,
        planned.document.servers,
    )


def _check_names(names: Collection[str], fresh: Collection[str]) -> None:
    """Raises Refused if a name is given twice, or if a new tool would take over another's settings."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Refused("name_taken", f"Two of the tools would be named {name}.")
        seen.add(name)
    others = Tool.objects.filter(name__in=fresh)
    if other := others.select_related("source").first():
        raise Refused("name_taken", f"{other.name} is a tool of {other.source.name}: give this one a different name.")


def _raise_effects(planned: Plan, chosen: Mapping[str, Choice], actor: str) -> list[configuration.Change | None]:
    """Store effect classes that a person, or the document as it is now, made stronger."""
    raised: list[configuration.Change | None] = []
    for key, choice in chosen.items():
        row = planned.by_key[key].row
        if row is not None and is_weaker(row.effect_class, choice.effect_class):
            stored = contracts.held(Tool.objects.filter(pk=row.pk)) or row
            stored.effect_class = stronger(stored.effect_class, choice.effect_class)
            raised.append(configuration.save(stored, actor))
    return raised
