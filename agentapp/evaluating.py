"""What people can do with evals: start one, end one, keep cases. Checks who may, then calls the writers."""

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from pydantic import ValidationError

from agentapp import auth, erasing, runs, tasks
from agentapp.evals import files, judged, results, suites
from agentapp.evals.cases import Case
from agentapp.evals.comparing import check_baseline
from agentapp.models import Agent, EvalCase, EvalRun, EvalSuite, Run
from agentapp.refused import Refused
from approvals import ledger, supposing
from approvals.digest import storable
from approvals.models import Judgement


def start_eval(
    suite: EvalSuite,
    user: User,
    *,
    agent: str = "",
    model: str = "",
    baseline: EvalRun | None = None,
    only: list[str] | None = None,
    with_drafts: Sequence[str] = (),
    without_rules: Sequence[str] = (),
    via: str = "",
    key: uuid.UUID | None = None,
) -> EvalRun:
    """Have workers run a suite, or some of its cases, under the rules in force or under supposed ones.

    `key`: the form's key. It becomes the eval's own, so that one form starts only one eval.
    """
    if not auth.may_mock(user):
        raise Refused("forbidden", "Running evals needs the right to run evals.")
    check_agent(agent)
    if baseline is not None:
        check_baseline(suite, baseline)
    if (with_drafts or without_rules) and not auth.may_suppose_rules(user):
        raise Refused("forbidden", "Trying other rules needs the right to view rules.", "rules")
    rules = supposed(with_drafts, without_rules)
    cases = chosen(suite, only)
    wanted: dict[str, Any] = {"starter": user, "agent": agent, "model": model, "baseline": baseline, "rules": rules}
    asked = EvalRun(suite=suite, **wanted)
    earlier = _earlier(key, asked, cases)
    if earlier is not None:
        return earlier
    try:
        with ledger.transaction():
            made = results.create(suite, cases, key=key, actor=ledger.actor_of(user, via), **wanted)
            transaction.on_commit(partial(tasks.nudge_eval, made.pk), robust=True)
            return made
    except IntegrityError:
        # The form was posted twice at once: the first post has started the eval.
        earlier = _earlier(key, asked, cases)
        if earlier is None:
            raise
        return earlier


def _earlier(key: uuid.UUID | None, asked: EvalRun, cases: Sequence[Case]) -> EvalRun | None:
    """The eval started with this key. Raises Refused if that was a different one."""
    found = EvalRun.objects.filter(pk=key).first() if key else None
    if found is None:
        return None
    alike = all(getattr(found, name) == getattr(asked, name) for name in _ASKED)
    if not alike or [each["document"]["name"] for each in found.planned] != [case.name for case in cases]:
        raise Refused(
            "idempotency_key_reused", "This form has already started an eval. Open the page again for another."
        )
    return found


_ASKED = ("suite_id", "starter_id", "agent", "model", "baseline_id", "supposes")


def supposed(with_drafts: Sequence[str], without_rules: Sequence[str]) -> dict[str, Any]:
    """Drafts and rules by their names, as an eval keeps them. Raises Refused if there is no such draft or rule."""
    if not with_drafts and not without_rules:
        return {}
    try:
        rules = supposing.supposed(without_rules, with_drafts)
        supposing.suppose((), rules)
    except LookupError as error:
        raise Refused("unknown_rule", str(error.args[0]), "rules") from error
    return rules


def check_agent(agent: str) -> None:
    """Raises Refused if there is no such agent to run the cases: all of them, or one agent's, as in old=new."""
    new = agent.rpartition("=")[2]
    if agent and not Agent.objects.filter(name=new, enabled=True).exists():
        raise Refused("unknown_agent", f"There is no agent named {new!r}.", "agent")


def chosen(suite: EvalSuite, only: list[str] | None = None) -> list[Case]:
    """The cases of a suite, or those with these names. Raises Refused if there are none, or a name is unknown."""
    rows = list(suite.cases.order_by("name"))
    if only:
        unknown = sorted(set(only) - {row.name for row in rows})
        if unknown:
            raise Refused("unknown_case", f"{suite.name} has no case named {unknown[0]}.", "case")
        rows = [row for row in rows if row.name in only]
    if not rows:
        raise Refused("invalid", f"{suite.name} has no cases.")
    return [_readable(row) for row in rows]


def _readable(row: EvalCase) -> Case:
    try:
        return suites.case_of(row)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise Refused("invalid", f"The case {row.name} can no longer be read ({place}): write it again.") from error


def cancel_eval(eval_run: EvalRun, user: User) -> bool:
    """End an eval before it is complete. False: it has already ended."""
    if not auth.may_mock(user):
        raise Refused("forbidden", "Ending evals needs the right to run evals.")
    return results.cancel(eval_run.pk, ledger.actor_of(user))


def may_write(user: User) -> bool:
    """Who may write cases."""
    return user.is_active and user.has_perm("agentapp.change_evalcase")


def start_suite(name: str, description: str, user: User) -> EvalSuite:
    """A suite for cases that people write."""
    if not may_write(user):
        raise Refused("forbidden", "Writing cases needs the right to change them.")
    if not files.SUITE_NAME.fullmatch(name):
        raise Refused("invalid", "A suite has a name of letters, digits and hyphens.", "name")
    if EvalSuite.objects.filter(name=name).exists():
        raise Refused("exists", f"There is a suite named {name} already.", "name")
    return suites.create(name, storable(description.strip()), ledger.actor_of(user))


def save_case(
    suite: EvalSuite,
    case: Case,
    user: User,
    *,
    row: EvalCase | None = None,
    made_of: Run | None = None,
    judgement: Judgement | None = None,
) -> EvalCase:
    """Keep a case that a person has written: a new one, or a new version of `row`. Cases in files are changed there."""
    _check_may_write(suite, user)
    with ledger.transaction():
        if made_of is not None:
            _hold(made_of)
        # Two people who give the same name at once take turns.
        EvalSuite.objects.select_for_update().filter(pk=suite.pk).first()
        _check_name(suite, case, row, made_of)
        return suites.save_case(suite, case, ledger.actor_of(user), row=row, made_of=made_of, judgement=judgement)


def save_case_of(run: Run, case: Case, user: User, name: str, *, about: str = "", **more: Any) -> EvalCase:
    """Keep a case made from a run in the suite of this name, which is created if it does not exist."""
    if not files.SUITE_NAME.fullmatch(name):
        raise Refused("invalid", "A suite has a name of letters, digits and hyphens.", "suite")
    with ledger.transaction():
        # The run first, in the same order as erasing. A refusal here leaves no suite behind.
        _hold(run)
        suite = suites.create(name, about, ledger.actor_of(user))
        return save_case(suite, case, user, made_of=run, **more)


def _hold(run: Run) -> None:
    """Lock a run until its case is stored: an erasure of the run then finds the case, or came first."""
    held = runs.lock(run.pk)
    if held is None or held.erased_at is not None:
        raise Refused("invalid", ERASED)


def _check_name(suite: EvalSuite, case: Case, row: EvalCase | None, made_of: Run | None) -> None:
    """Refuse a case that would replace another, unless both were made from the same run or a decision in it."""
    other = suite.cases.filter(name=case.name).first()
    again = other is not None and made_of is not None and other.made_of_id == made_of.pk
    if other is not None and other != row and not again:
        raise Refused("exists", f"{suite.name} already has a case named {case.name}.", "name")
    if row is not None and row.name != case.name and row.made_of_id is not None:
        said = f"{row.name} was made from a run and keeps its name, which finds what to erase with the run."
        raise Refused("invalid", said, "name")


def remove_case(row: EvalCase, user: User) -> None:
    """Delete a case that a person has written. If it was made from a run, its words in evals go too."""
    _check_may_write(row.suite, user)
    actor = ledger.actor_of(user)
    if row.made_of_id is None:
        suites.remove_case(row, actor)
        return
    if EvalRun.objects.filter(suite=row.suite).exclude(state__in=EvalRun.FINAL).exists():
        said = f"An eval of {row.suite.name} is under way, and deleting this case erases its words there."
        raise Refused("conflict", f"{said} Wait for the eval to end, or cancel it.")
    with ledger.transaction():
        erasing.take_tried_away(suites.runs_of(row), actor, {})
        suites.remove_case(row, actor)


def _check_may_write(suite: EvalSuite, user: User) -> None:
    if not may_write(user):
        raise Refused("forbidden", "Writing cases needs the right to change them.")
    if suite.directory:
        raise Refused("in_files", f"The cases of {suite.name} are in {suite.place}: change them there.")


JUDGED = "judged-decisions"
"""The suite for cases made from decisions, unless somebody chooses another."""
_OF_JUDGED = "Cases made of decisions that somebody has judged."


def save_judged(run: Run, judgement: Judgement, user: User) -> EvalCase:
    """Keep a case for a judged decision: it must be decided the same way again, or no longer."""
    if hindrance := hindrance_of(run):
        raise Refused("invalid", hindrance)
    case = suites.read_case(judged.document_for(run, judgement))
    return save_case_of(run, case, user, JUDGED, about=_OF_JUDGED, judgement=judgement)


ERASED = "The input of this run is erased."


def hindrance_of(run: Run) -> str:
    """Why no case can be made from a run; empty if one can."""
    if run.erased_at is not None:
        return ERASED
    if not run.is_final:
        return "The run has not ended, so nobody knows how its case should end."
    return "Another run asked for this one: make a case from that run." if run.parent_id is not None else ""


def find_suite(name: str) -> EvalSuite:
    found = EvalSuite.objects.filter(name=name).first()
    if found is None:
        raise Refused("not_found", f"There is no suite named {name!r}.")
    return found


def find_eval(reference: str | uuid.UUID) -> EvalRun:
    """An eval by its key or the reference that people read."""
    text = str(reference)
    evals = EvalRun.objects.select_related("suite", "starter", "baseline")
    try:
        return evals.get(pk=uuid.UUID(text))
    except (ValueError, EvalRun.DoesNotExist):
        end = text.removeprefix("eval_")
        found = list(evals.filter(pk__iendswith=end)[:2]) if len(end) == 6 else []
    if len(found) != 1:
        raise Refused("not_found", f"There is no eval {text!r}, or more than one.")
    return found[0]
