"""Several rulings as one request: the strictest decides. Pure: it reads no row and writes none."""

from collections.abc import Sequence
from dataclasses import replace

from approvals import step_up
from approvals.models import DecisionType, Rule, Verdict
from approvals.policy import RISK_ORDER, Ruling, hold, target, time_to_decide
from approvals.thresholds import in_common

APART = "Different people decide these calls, so no one person can decide the plan. Plan them separately."
# A list is approved or rejected as it is.
AS_A_WHOLE = (str(DecisionType.APPROVE), str(DecisionType.REJECT))


def strictest(own: Ruling, calls: Sequence[Ruling]) -> Ruling:
    """The ruling on a plan: what the rules say about planning, and about every call. People are asked in any case.

    If one ruling denies, so does the whole. Thresholds do not add up over calls, so the planner leaves such calls out.
    """
    every = [own, *calls]
    denied = next((one for one in every if one.verdict == Verdict.DENY), None)
    if denied is not None:
        return denied
    first = max(calls, key=lambda one: RISK_ORDER.index(one.risk), default=own)
    named = [one.groups for one in every if one.groups]
    shared = in_common(named)
    if named and not shared:
        return replace(first, verdict=Verdict.DENY, reason=APART)
    asking = [one for one in every if one.allowed_decisions]
    allowed = tuple(d for d in AS_A_WHOLE if all(d in one.allowed_decisions for one in asking))
    # If no rule is about planning, nobody has said how long a plan waits, so its calls do.
    timed = asking if own.rule else [one for one in asking if one is not own]
    stops = any(one.on_expiry == Rule.OnExpiry.STOP for one in every)
    same_steps = all(one.escalation == first.escalation for one in calls)
    # If a rule about planning gives the plan to some groups, its steps must be the same too.
    same_steps = same_steps and (not own.groups or own.escalation == first.escalation)
    return Ruling(
        verdict=Verdict.ASK,
        reason=first.reason,
        rule=first.rule,
        rule_version=first.rule_version,
        rule_digest=first.rule_digest,
        risk=max((one.risk for one in every), key=RISK_ORDER.index),
        groups=shared,
        approvals_needed=max(one.approvals_needed for one in every),
        starter_excluded=any(one.starter_excluded for one in every),
        expires_seconds=time_to_decide(one.expires_seconds for one in timed),
        on_expiry=Rule.OnExpiry.STOP if stops else Rule.OnExpiry.REJECT,
        allowed_decisions=allowed or (str(DecisionType.REJECT),),
        hold_seconds=hold(one.hold_seconds for one in timed),
        # A step lets more people decide, so it stays only if it does so for every call.
        escalation=first.escalation if same_steps else (),
        target_seconds=target(one.target_seconds for one in timed),
        business_hours=all(one.business_hours for one in every),
        condition=first.condition,
        values=first.values,
        customer=any(one.customer for one in every),
        terms=next((one.terms for one in every if one.terms), ()),
        about=next((one.about for one in every if one.terms), {}),
        assurance=step_up.strictest(one.assurance for one in every),
    )
