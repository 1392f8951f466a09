"""Says afterwards whether a decision was good. It does not change what was decided."""

import uuid

from django.contrib.auth.models import User

from agentapp import auth, runs
from agentapp.refused import Refused
from approvals import judgements, ledger
from approvals.models import Decision, Judgement
from approvals.standing import Refusal


def judge_decision(decision_id: uuid.UUID, mark: str, reason: str, user: User) -> Judgement:
    """Mark a decision good, wrong or harmful, for a person who may judge decisions and did not make this one."""
    seen = Decision.objects.filter(approval__in=auth.visible_approvals(user), pk=decision_id)
    run_id = seen.values_list("approval__run_id", flat=True).first()
    if run_id is None:
        raise Refused("not_found", "There is no such decision.")
    with ledger.transaction():
        runs.lock(run_id)
        decision = Decision.objects.select_related("approval").get(pk=decision_id)
        made = judgements.add(decision, mark, reason, user)
    if isinstance(made, Refusal):
        raise Refused.by(made, decision.approval, field="reason")
    return made
