"""The terms on which people are asked about a call: under which rules, and how risky it is now. Reads only."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib.auth.models import Group

from agentapp import provenance, runs, weighing
from agentapp.asked_for import AskedFor
from agentapp.models import Tool, ToolExecution
from agentapp.proposals import Situation, origins_for, ruling_for
from agentapp.tools.arguments import effective
from agentapp.weighing import Weighed
from approvals import clock
from approvals.digest import parse
from approvals.models import Verdict
from approvals.policy import Ruling

# A request is made right after its call was proposed, unless it has to wait for earlier calls.
LATE = timedelta(minutes=1)


def weighed(situation: Situation, execution: ToolExecution, tool: Tool, asked: AskedFor) -> Weighed:
    """The terms people are asked under, with where the call's values came from and how that changes its risk."""
    arguments = parse(asked.text)
    # For a call that a person has changed: what the model proposed.
    was = effective(tool, parse(execution.arguments_text or "{}")) if asked.editor_id is not None else None
    situation = replace(situation, asked=asked.asked)
    origins = origins_for(situation, tool, arguments, was)
    origins = provenance.with_people(origins, situation.sources, arguments, asked.hands)
    terms = _terms(situation, execution, tool, asked.text, origins)
    earlier = weighing.before(situation.run, tool, execution)
    return weighing.weigh(execution, tool, terms, arguments, origins, earlier, clock.now())


def _terms(
    situation: Situation, execution: ToolExecution, tool: Tool, text: str, origins: list[dict[str, Any]]
) -> Ruling:
    """The ruling frozen at proposal. If the call asks again, the current rules, which may only be stricter."""
    frozen = Ruling.from_json(execution.ruling)
    if (
        execution.times_asked == 0
        and frozen.verdict == Verdict.ASK
        and not _names_who_is_gone(situation, execution, frozen)
    ):
        return frozen
    # If only the customer was asked, asking again need not involve people.
    again = partial(ruling_for, situation, tool, parse(text), again=execution, origins=lambda: origins)
    ruling = again(always_ask=frozen.verdict == Verdict.ASK and frozen.people)
    return ruling if ruling.verdict != Verdict.ALLOW else again(always_ask=True)


def _names_who_is_gone(situation: Situation, execution: ToolExecution, frozen: Ruling) -> bool:
    """Whether an older ruling names a group that no longer exists, so that it could not say whom to ask."""
    proposed_at = execution.proposed_at  # not a time yet if it was stored only now
    waited = isinstance(proposed_at, datetime) and runs.clock(situation.run) - proposed_at > LATE
    is_late = execution.index > 0 or waited
    named = {*frozen.groups} if is_late else set()
    return bool(named) and Group.objects.filter(pk__in=named).count() < len(named)
