"""Lets people, never programs, allow calls like a requested one for a while, and revoke that."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import auth, runs
from agentapp.models import Run, Tool, ToolExecution
from agentapp.proposals import Situation, ruling_for
from agentapp.refused import Refused
from agentapp.tools.arguments import effective
from agentapp.tools.sources import implementation_of
from agentapp.toolset import read_rules
from approvals import granted, grants, ledger, lens
from approvals.digest import MalformedJSON, parse
from approvals.granted import ANY, AT_MOST, IS, fits, number_of
from approvals.grants import Terms
from approvals.models import Approval, Grant, GrantLimit
from approvals.standing import Refusal

# What a preview covers: the days people remember, and no more calls than can be read quickly.
LOOKS_BACK = timedelta(days=30)
MAX_LOOKED_AT = 500


@dataclass(frozen=True)
class NewGrant:
    """What a person allows, as it came in. Texts are as typed."""

    rules: Mapping[str, str]
    """For each argument: is, at_most or any."""
    most: Mapping[str, str] = field(default_factory=dict)
    sums: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, str] = field(default_factory=dict)
    days: str = ""
    max_hits: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Asked:
    """A request with its tool and run, as they are now."""

    approval: Approval
    tool: Tool | None
    run: Run | None
    """Read with the database's clock, which rules use."""
    call: ToolExecution | None = None

    @classmethod
    def read(cls, approval: Approval, call: ToolExecution | None = None) -> "Asked":
        """`call`: with its tool, if it was read with the request."""
        if call is not None:
            tool = call.tool
        else:
            tool = Tool.objects.select_related("source").filter(name=approval.tool).first()
            call = ToolExecution.objects.filter(pk=approval.execution_id).first()
        return cls(approval, tool, runs.with_configuration().filter(pk=approval.run_id).first(), call)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as decided, or as they wait."""
        found = parse(self.approval.final_arguments_text or self.approval.arguments_text)
        return found if isinstance(found, dict) else {}

    @property
    def counted(self) -> list[str]:
        """What its tool counts while it works, and so can be limited."""
        implementation = implementation_of(self.tool) if self.tool is not None else None
        return sorted(implementation.limits) if implementation is not None else []


@dataclass(frozen=True)
class Covered:
    """How many of last month's calls the constraints fit, of how many that were checked."""

    number: int
    of: int


def hidden_of(grant: Grant, tool: Tool | None) -> list[str]:
    """The arguments whose bounds are masked for this reader. The grant comes with its request."""
    secret, personal = (tool.secret_fields, tool.pii_fields) if tool is not None else ([], [])
    return lens.hidden([*grant.approval.secret_fields, *secret], [*grant.approval.pii_fields, *personal])


def why_not(asked: Asked, user: User) -> Refusal | None:
    """Why this person cannot allow calls like this one for a while. None: they can."""
    return grants.may_make(user, asked.approval) or _not_by_rules(asked)


def terms_of(asked: Asked, new: NewGrant) -> Terms:
    """What was typed, as terms. Raises Refused with the field at fault."""
    arguments = asked.arguments
    constraints = []
    for name, value in arguments.items():
        rule = new.rules.get(name, IS)
        constraint: dict[str, Any] = {"name": name, "rule": rule}
        if rule == AT_MOST:
            constraint["value"] = new.most.get(name, "").strip()
        elif rule != ANY:
            constraint["value"] = value
        constraints.append(constraint)
    limits = [(GrantLimit.Kind.SUM, name, text) for name, text in new.sums.items() if name in arguments]
    limits += [(GrantLimit.Kind.COUNT, name, text) for name, text in new.counts.items()]
    return Terms(
        constraints=constraints,
        days=_whole(new.days, "days"),
        reason=new.reason,
        max_hits=_whole(new.max_hits, "max_hits") if new.max_hits.strip() else None,
        limits=[(str(kind), name, _amount(text, f"limit:{name}")) for kind, name, text in limits if text.strip()],
    )


def covered(asked: Asked, terms: Terms, user: User) -> Covered:
    """How many calls the constraints would have covered, in the runs this person may see.

    Raises Refused for constraints that no grant could have: nobody should find a secret by trying values.
    """
    if wrong := grants.wrong_constraint(asked.approval, terms):
        raise Refused("invalid", wrong.message, wrong.code)
    approval, tool = asked.approval, asked.tool
    recent = ToolExecution.objects.filter(
        name=approval.tool,
        mocked=False,
        run__in=auth.visible_runs(user).filter(agent__name=approval.agent),
        proposed_at__gte=timezone.now() - LOOKS_BACK,
    )
    texts = recent.order_by("-proposed_at").values_list("executed_text", "arguments_text")[:MAX_LOOKED_AT]
    calls = [_read(executed or proposed, tool) for executed, proposed in texts]
    return Covered(sum(call is not None and fits(terms.constraints, call) for call in calls), len(calls))


def make_grant(approval_id: uuid.UUID, new: NewGrant, user: User) -> Grant:
    """Allow calls like a requested one, for a while. The request itself is decided as usual."""
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    with ledger.transaction():
        runs.lock(approval.run_id)  # a decision about the request waits for this, or is seen here
        approval.refresh_from_db()
        asked = Asked.read(approval)
        if refusal := why_not(asked, user):
            raise Refused.by(refusal)
        terms = terms_of(asked, new)
        unknown = {name for kind, name, _ in terms.limits if kind == GrantLimit.Kind.COUNT} - set(asked.counted)
        if unknown:
            raise Refused("limits", f"The tool does not count {sorted(unknown)[0]}.", "limits")
        made = grants.make(approval, terms, user)
        if isinstance(made, Refusal):
            raise Refused("invalid", made.message, made.code)
    return made


def revoke_grant(grant_id: uuid.UUID, why: str, user: User) -> Grant:
    """Revoke a grant at once. A call that has begun is not affected."""
    grant = Grant.objects.select_related("approval").filter(pk=grant_id).first()
    if grant is None:
        raise Refused("not_found", "There is no such grant.")
    if not auth.may_revoke_grant(user, grant):
        raise Refused("forbidden", "Revoking this needs the right to add grants, or to engage kill switches.")
    if not why.strip():
        raise Refused("message_required", "Say why: the reason stays on record.", "reason")
    with ledger.transaction():
        runs.lock(grant.approval.run_id)
        done = grants.revoke(grant_id, user, why.strip())
    if not done:
        raise Refused("already_revoked", "This grant has already been revoked.")
    grant.refresh_from_db()
    return grant


def _not_by_rules(asked: Asked) -> Refusal | None:
    """Why it is not allowed by the rules, the tool and its contract as they are now."""
    approval, tool, run = asked.approval, asked.tool, asked.run
    if tool is None or (tool.version, tool.effect_class) != (approval.tool_version, approval.effect_class):
        return Refusal("not_grantable", "The tool has changed since this was asked, so people are asked again.")
    if run is None:
        return Refusal("not_grantable", "The run no longer exists.")
    # Rules that count other calls must not count this one, and its values came from where people saw they did.
    situation = Situation(run, read_rules(run), {}, ())
    ruling = ruling_for(situation, tool, asked.arguments, again=asked.call, origins=lambda: approval.provenance)
    if granted.may_be_granted(ruling, tool.effect_class):
        return None
    return Refusal("not_grantable", f"The rules require a person each time: {ruling.reason}")


def _read(text: str, tool: Tool | None) -> dict[str, Any] | None:
    """Arguments with the defaults they would run with. None: they cannot be read."""
    try:
        found = parse(text or "{}")
    except MalformedJSON:
        return None
    if not isinstance(found, dict):
        return None
    return effective(tool, found) if tool is not None else found


def _whole(text: str, field: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 8):
        raise Refused("invalid", "Give a whole number.", field)
    return int(stripped)


def _amount(text: str, field: str) -> Decimal:
    try:
        number = Decimal(text.strip()) if number_of(text.strip()) is not None else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_nan():
        raise Refused("invalid", "Give a plain number, as in 500 or 99.50.", field)
    return number
