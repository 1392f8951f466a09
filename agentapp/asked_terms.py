"""On what terms people are asked about a call: by whose rules, and how risky it is by now. Reads only."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib.auth.models import Group
from django.utils import timezone

from agentapp import provenance, runs, weighing
from agentapp.asked_for import AskedFor
from agentapp.models import Tool, ToolExecution
from agentapp.proposals import Situation, origins_for, ruling_for
from agentapp.tools.arguments import effective
from agentapp.weighing import Weighed
from approvals.digest import parse
from approvals.models import Verdict
from approvals.policy import Ruling

# A request is made right after its call was proposed, but where calls before it are waited for.
LATE = timedelta(minutes=1)


def weighed(situation: Situation, execution: ToolExecution, tool: Tool, asked: AskedFor) -> Weighed:
    """The terms people are asked under, with where the call's values came from and what that makes of its risk."""
    arguments = parse(asked.text)
    # Of a call that a person has changed: what the model had proposed.
    was = effective(tool, parse(execution.arguments_text or "{}")) if asked.editor_id is not None else None
    situation = replace(situation, asked=asked.asked)
    origins = origins_for(situation, tool, arguments, was)
    origins = provenance.with_people(origins, situation.sources, arguments, asked.hands)
    terms = _terms(situation, execution, tool, asked.text, origins)
    earlier = weighing.before(situation.run, tool, execution)
    return weighing.weigh(execution, tool, terms, arguments, origins, earlier, timezone.now())


def _terms(
    situation: Situation, execution: ToolExecution, tool: Tool, text: str, origins: list[dict[str, Any]]
) -> Ruling:
    """The ruling frozen at proposal; when the call asks again, the rules of now, which may only be stricter."""
    frozen = Ruling.from_json(execution.ruling)
    if (
        execution.times_asked == 0
        and frozen.verdict == Verdict.ASK
        and not _names_who_is_gone(situation, execution, frozen)
    ):
        return frozen
    # What the customer alone was asked about need not go to people because it asks again.
    again = partial(ruling_for, situation, tool, parse(text), again=execution, origins=lambda: origins)
    ruling = again(always_ask=frozen.verdict == Verdict.ASK and frozen.people)
    return ruling if ruling.verdict != Verdict.ALLOW else again(always_ask=True)


def _names_who_is_gone(situation: Situation, execution: ToolExecution, frozen: Ruling) -> bool:
    """Whether a ruling of some time ago names a group that there is no more: nobody could be asked by it."""
    proposed_at = execution.proposed_at  # no moment yet where it was stored right now
    waited = isinstance(proposed_at, datetime) and runs.clock(situation.run) - proposed_at > LATE
    is_late = execution.index > 0 or waited
    named = {*frozen.groups} if is_late else set()
    return bool(named) and Group.objects.filter(pk__in=named).count() < len(named)
