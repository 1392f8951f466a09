"""What people are shown when a call must wait, made from the tool's own templates and the checked arguments."""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings

from agentapp import mocks, planning, previews, recorded, secrecy
from agentapp.asked_for import AskedFor, proposed_text
from agentapp.deadline import DeadlineExceeded, within
from agentapp.guidance.guidelines import Guidelines
from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools import sentences
from agentapp.tools.planning import proposes_plan
from agentapp.tools.results import ToolError
from agentapp.tools.sources import implementation_of, is_of_this_code
from agentapp.transcript import StepRows
from agentapp.weighing import Weighed
from approvals import snapshots, standing
from approvals.cards import Card
from approvals.digest import canonical, parse
from approvals.masking import is_of, masked, masked_beside
from approvals.models import Approval, ApprovalKind, DecisionType, Risk
from approvals.policy import Ruling

MAX_EVIDENCE, MAX_EVIDENCE_CHARS, MAX_EXPLANATION_CHARS = 12, 4000, 8000
SNAPSHOT_SECONDS, CRITICAL_HOLD_SECONDS = 5, 10


@dataclass(frozen=True)
class Words:
    """What a card says about a call in words."""

    title: str
    sentence: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    button: str


@dataclass(frozen=True)
class LookedUp:
    """What a tool found when it looked up the state that a call depends on."""

    text: str = ""
    refused: str = ""
    """Why the tool refuses the call. Kept apart from the state, in which a tool may use any name."""


@dataclass(frozen=True)
class Made:
    """A request that could be made, and why its tool refuses the call, if it does."""

    card: Card
    refused: str = ""


def words_of(approval: Approval, tool: Tool | None, arguments: dict[str, Any]) -> Words:
    """The words of a request whose call would run with these arguments. For changed arguments they are made again, as
    long as the tool is the one that people were asked about.
    """
    edited = canonical(arguments) != canonical(parse(approval.arguments_text))
    if not edited or tool is None or tool.version != approval.tool_version:
        title = approval.shown_title if edited else approval.title
        return Words(title, approval.sentence, approval.effects, approval.button)
    secrets = approval.secret_fields
    return _words(tool, masked(arguments, secrets), state_shown(approval.snapshot_text, secrets))


def state_shown(snapshot_text: str, secrets: Collection[str]) -> dict[str, Any]:
    """What was looked up for a request, without secrets, for making its words."""
    shown: dict[str, Any] = masked(parse(snapshot_text), secrets) if snapshot_text else {}
    return shown


def _words(tool: Tool, shown: dict[str, Any], snapshot: dict[str, Any]) -> Words:
    return Words(
        sentences.title(tool, shown, snapshot),
        sentences.sentence(tool, shown, snapshot),
        sentences.effects(tool, shown, snapshot),
        sentences.button(tool, shown, snapshot),
    )


def title_of(execution: ToolExecution) -> str:
    """What a call does, in one line without secrets: from its card, or as a card would say it. "": unknown."""
    if execution.approval is not None:
        return execution.approval.shown_title
    if execution.tool is None or execution.erased_at is not None:
        return ""
    arguments = parse(execution.executed_text or proposed_text(execution, execution.tool))
    return _words(execution.tool, masked(arguments, execution.all_secret_fields), {}).title


def build(
    run: Run,
    steps: list[StepRows],
    execution: ToolExecution,
    tool: Tool,
    weighed: Weighed,
    asked: AskedFor,
    kind: ApprovalKind = ApprovalKind.AUTHORIZATION,
) -> Made:
    """The request to people, or to the customer, about one call.

    Looks up the state that the decision depends on; writes nothing.
    """
    ruling = _of_customer(weighed.terms) if kind == ApprovalKind.CONFIRMATION else _confirmed(weighed.terms)
    if execution.attempts:
        ruling = _without_edits(ruling)  # it may have happened: another call cannot take its place
    if run.undoes_id is not None or run.is_trial or run.opening is not None:
        # Nobody decides about a call they worded themselves, whatever a rule says about starters.
        ruling = replace(ruling, starter_excluded=True)
    arguments = parse(asked.text)
    looked_up = take_snapshot(run, tool, arguments, execution.times_asked)
    snapshot_text = looked_up.text
    secrets = list(dict.fromkeys([*tool.secret_fields, *execution.secret_fields]))
    words = _words(tool, masked(arguments, secrets), state_shown(snapshot_text, secrets))
    card = Card(
        run_id=run.pk,
        execution_id=execution.pk,
        agent=run.agent_snapshot["name"],
        route=run.route,
        run_title=run.title,
        tool=tool.name,
        tool_version=tool.version,
        effect_class=tool.effect_class,
        arguments_text=asked.text,
        title=words.title,
        sentence=words.sentence,
        effects=words.effects,
        button=words.button,
        locked_fields=list(tool.locked_fields),
        secret_fields=secrets,
        pii_fields=list(dict.fromkeys([*tool.pii_fields, *execution.pii_fields])),
        salt=execution.salt,
        evidence=evidence(run, steps, execution),
        explanation=_cut(steps[-1].step.text, MAX_EXPLANATION_CHARS),
        snapshot_text=snapshot_text,
        preview_text=previews.take(tool, arguments),
        difference=_difference(asked.replaces, snapshot_text, asked.text, secrets),
        risk_factors=weighed.factors,
        provenance=weighed.provenance,
        starter_id=run.starter_id,
        supersedes_id=asked.replaces.pk if asked.replaces else None,
        editor_id=asked.editor_id,
        editor_lender_id=asked.editor_lender_id,
        kind=kind,
        mocked=run.is_mocked,
        **_terms_of(ruling, kind, is_mocked=run.is_mocked),
    )
    return Made(card, looked_up.refused)


def _terms_of(ruling: Ruling, kind: ApprovalKind, *, is_mocked: bool) -> dict[str, Any]:
    """What stopped the call, and how it is decided: by whom, by how many, with which decisions, and until when."""
    terms, confirms = standing.terms_of(ruling), kind == ApprovalKind.CONFIRMATION
    people = terms.fewest if terms else standing.people_needed(ruling)
    return {
        "rule": ruling.rule,
        "rule_version": ruling.rule_version,
        "rule_digest": ruling.rule_digest,
        "reason": ruling.reason,
        "condition": ruling.condition,
        "rule_values": ruling.values,
        "risk": ruling.risk,
        "allowed_decisions": tuple(ruling.allowed_decisions),
        "approvals_needed": 1 if confirms else people,
        "terms": tuple(terms.as_json()),
        "about": ruling.about,
        "starter_excluded": ruling.starter_excluded,
        "assurance_needed": ruling.assurance,
        "hold_seconds": 0 if confirms or is_mocked else _hold_seconds(ruling),
        "on_expiry": ruling.on_expiry,
        "expires_seconds": ruling.expires_seconds or settings.APPROVAL_EXPIRES_SECONDS,
        "groups": tuple(ruling.groups),
        "escalation": ruling.escalation,
        # Targets are for people, not for customers.
        "target_seconds": None if confirms else ruling.target_seconds or settings.APPROVAL_TARGET_SECONDS or None,
        "business_hours": ruling.business_hours,
    }


def _of_customer(ruling: Ruling) -> Ruling:
    """The terms on which a customer is asked: yes or no, one person, at once."""
    allowed = (str(DecisionType.APPROVE), str(DecisionType.REJECT))
    return replace(
        ruling, groups=(), terms=(), about={}, starter_excluded=False, allowed_decisions=allowed, escalation=(),
        business_hours=False,
    )  # fmt: skip


def _confirmed(ruling: Ruling) -> Ruling:
    """The terms for people once the customer has confirmed: no edits, which the customer would not have seen."""
    if not ruling.customer:
        return ruling
    return replace(_without_edits(ruling), reason=f"{ruling.reason} (The customer has confirmed it.)")


def _without_edits(ruling: Ruling) -> Ruling:
    allowed = tuple(d for d in ruling.allowed_decisions if d != DecisionType.EDIT) or (str(DecisionType.REJECT),)
    return replace(ruling, allowed_decisions=allowed)


def _hold_seconds(ruling: Ruling) -> int:
    """How long a decision can be undone. At critical risk, a rule can only make it longer."""
    hold = settings.UNDO_HOLD_SECONDS if ruling.hold_seconds is None else ruling.hold_seconds
    return min(max(hold, CRITICAL_HOLD_SECONDS) if ruling.risk == Risk.CRITICAL else hold, 60)


def take_snapshot(run: Run, tool: Tool, arguments: dict[str, Any], turn: int = 0) -> LookedUp:
    """The state that a decision about this call depends on, as canonical text; empty if the tool names none.

    A snapshot that cannot be taken is itself a state: if it can be taken later, the world has changed. `turn`: how
    often people have been asked about the call. A mocked run's mocks give its state for each turn and refuse nothing.
    """
    if proposes_plan(tool):
        return LookedUp(planning.snapshot_of(arguments, lambda each, its: take_snapshot(run, each, its, turn).text))
    if run.is_mocked:
        then = recorded.snapshot_text(run, tool.name, canonical(arguments))
        if then is not None:
            return LookedUp(then)
        found = mocks.snapshot(run, tool.name, turn)
        is_empty = found is None and not tool.takes_snapshot
        return LookedUp("" if is_empty else canonical(found or sentences.looked_up(tool)))
    if tool.takes_snapshot and not is_of_this_code(tool):
        return LookedUp(snapshots.unseen("the code here is of another version of the tool"))
    implementation = implementation_of(tool)
    if implementation is None or implementation.snapshot is None:
        return LookedUp()
    try:
        return LookedUp(canonical(within(SNAPSHOT_SECONDS, implementation.snapshot_of, arguments)))
    except DeadlineExceeded:
        return LookedUp(snapshots.unseen(f"no answer in {SNAPSHOT_SECONDS} s"))
    except Exception as error:  # a tool's code may fail in any way
        why = str(error)[:300] if isinstance(error, ToolError) and error.refused else ""
        return LookedUp(snapshots.unseen(f"{type(error).__name__}: {error}"[:300]), why)


def evidence(run: Run, steps: list[StepRows], call: ToolExecution) -> list[dict[str, Any]]:
    """What was known when the call was proposed: the input, earlier results, the guidelines that ask for it."""
    items: list[dict[str, Any]] = [
        {
            "kind": "message",
            "title": "What the run was given",
            "body": _cut(run.input, MAX_EVIDENCE_CHARS),
            "trust": "untrusted_content",
            "at": run.created_at.isoformat(),
        }
    ]
    if run.undoes_id is not None:
        items.append(_taken_back(run))
    answered = [
        execution
        for rows in steps
        for execution in rows.executions
        if execution.state == ToolExecution.State.FINISHED and execution.result_status == "ok"
    ]
    for execution in answered[-MAX_EVIDENCE:]:
        value = secrecy.result_shown(execution)
        body = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        items.append(
            {
                "kind": "result",
                "title": execution.name,
                "body": _cut(body, MAX_EVIDENCE_CHARS),
                "trust": execution.trust,
                "ref": execution.evidence_ref,
                **_when(execution),
                "step": next(rows.step.number for rows in steps if execution in rows.executions),
            }
        )
    items += _guidelines(run, call)
    return [{"n": number, **item} for number, item in enumerate(items, start=1)]


def _taken_back(run: Run) -> dict[str, Any]:
    """The call that this run undoes, as it ran."""
    done = ToolExecution.objects.select_related("tool", "run").get(undone_in=run)
    ran = {"tool": done.name, "arguments": done.args, "result": done.value}
    body = json.dumps(secrecy.shown(done, ran, done.all_secret_fields), ensure_ascii=False, indent=2)
    return {
        "kind": "result",
        "title": f"The call to be taken back, of {done.run.reference}",
        "body": _cut(body, MAX_EVIDENCE_CHARS),
        "trust": done.trust,
        "ref": done.evidence_ref,
        **_when(done),
    }


def _guidelines(run: Run, call: ToolExecution) -> list[dict[str, Any]]:
    """The guidelines that led to the call, as the run keeps them. What a model says about them is not evidence."""
    if call.evaluation is None:
        return []
    kept = Guidelines.read(run.agent_snapshot.get("guidance", {})).by_name
    return [
        {
            "kind": "guideline",
            "title": guideline.name,
            "body": _cut(guideline.words, MAX_EVIDENCE_CHARS),
            "trust": "trusted_system",
            "version": guideline.version,
        }
        for name in call.evaluation.guidelines
        if (guideline := kept.get(name)) is not None
    ]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _when(execution: ToolExecution) -> dict[str, Any]:
    """When a result came, and how long it took, if the row in memory says so: the database sets these times."""
    began, ended = execution.started_at, execution.finished_at
    if not isinstance(ended, datetime):
        return {}
    took = {"took": round((ended - began).total_seconds(), 3)} if isinstance(began, datetime) else {}
    return {"at": ended.isoformat(), **took}


def _difference(
    replaced: Approval | None, snapshot_text: str, text: str, secrets: Collection[str]
) -> list[dict[str, Any]]:
    """What has changed since people were last asked: [{"name", "was", "now"}]. Lines about arguments are marked."""
    if replaced is None:
        return []
    before = parse(replaced.final_arguments_text or replaced.arguments_text)
    arguments = changed(before, parse(text), secrets)
    states = changed(planning.told(replaced.snapshot_text), planning.told(snapshot_text), secrets)
    return [*({**line, "of": "arguments"} for line in arguments), *states]


def changed(was: dict[str, Any], now: dict[str, Any], secrets: Collection[str]) -> list[dict[str, Any]]:
    """How two states differ: [{"name", "was", "now"}]. Of a secret, only that it differs."""
    names = sorted({*was, *now})
    hidden = {*secrets, *(name for name in names if is_of(name, secrets))}
    then, by_now = masked(was, hidden), masked_beside(now, was, hidden)
    return [{"name": n, "was": then.get(n), "now": by_now.get(n)} for n in names if was.get(n) != now.get(n)]
