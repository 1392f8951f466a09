"""Replays a run that has ended: the model's decisions, the results and people's decisions are those on record.

Rules, tools and limits are today's, and nothing happens outside. Any difference shows what would be different today.
"""

import uuid
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User

from agentapp import auth
from agentapp.branching import Branch
from agentapp.forking import forkable
from agentapp.models import Agent, ApiToken, Run
from agentapp.recorded import RECORD
from agentapp.refused import Refused
from agentapp.starting import NewRun, start_run
from agentapp.toolset import snapshot_of


def replay_run(run_id: uuid.UUID, user: User, request_key: str = "", token: ApiToken | None = None) -> Run:
    """Start a replay for the person who asks. Once per key."""
    if not auth.may_start(user):
        raise Refused("forbidden", "Replaying a run needs the right to start runs.")
    found = forkable(run_id, user)
    new = NewRun(
        agent=found.agent.name,
        input=found.input,
        route=found.route,
        customer=found.customer,
        metadata=found.metadata,
        request_key=request_key,
        title=found.title,
        retry_of=found.pk,
        branch=Branch(kind=Run.Branch.REPLAY, snapshot=_snapshot(found), asked_in=found.conversation or found.asked_in),
        mocks={RECORD: str(found.pk)},
    )
    return start_run(new, user, token)


def _snapshot(found: Run) -> dict[str, Any]:
    """The agent as it is today. A replay gets the extra budget that people allowed the run, and nobody raises it."""
    today = snapshot_of(found.agent)
    most = today["max_cost"]
    if most is not None and found.budget_extra:
        today["max_cost"] = str(Decimal(most) + found.budget_extra)
    return {**today, "on_budget": Agent.OnBudget.STOP}
