"""What came of an eval as a table for people, as JSON for programs and as JUnit for CI. Only reads rows."""

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from agentapp.evals.comparing import CHANGED, FIXED, GONE, NEW, REGRESSED, Comparison
from agentapp.evals.runner import CaseOutcome
from agentapp.models import EvalResult, EvalRun
from approvals.digest import storable

MARKS = {"passed": "ok", "failed": "FAIL", "skipped": "SKIP"}
WIDTH = 44
_WORDS = {
    "tool_selection": "Tool selection",
    "invalid_arguments": "Calls with invalid arguments",
    "unauthorized_calls": "Unauthorized calls, refused",
    "approval_routing": "Approval routing",
    "unsafe_chains_prevented": "Unsafe chains prevented",
    "stop_reasons": "Stop reasons",
    "denied_executed": "Denied actions executed",
    "stale_executed": "Actions executed on stale approvals",
    "unauthorized_executed": "Unauthorized calls executed",
    "real_executed": "Real tools called",
    "cost": "Cost, dollars",
    "model_cost": "of models",
    "tools_cost": "of tools",
    "seconds": "Seconds worked",
    "model_seconds": "in models",
    "tool_seconds": "in tools",
    "waited_seconds": "Seconds waited for people",
    "tokens": "Tokens",
}


def word(figure: str) -> str:
    """The name of a figure. Each part of a spread has its own."""
    return _WORDS.get(figure, figure.replace("_", " "))


def line(outcome: CaseOutcome) -> str:
    """One case, on as many lines as it has reasons to fail."""
    mark = MARKS[outcome.verdict]
    soft = "" if outcome.is_gate else "  (soft)"
    times = f"  {outcome.passes}/{len(outcome.results)}" if outcome.case.repeats.of > 1 else ""
    head = f"{mark:<5}{outcome.case.name:<{WIDTH}} {outcome.case.kind:<16}{times}{soft}".rstrip()
    return "\n".join([head, *(f"       {reason}" for reason in _told(outcome) if mark != "ok")])


def _told(outcome: CaseOutcome) -> list[str]:
    return [*outcome.runs_failed, *outcome.reasons]


def summary(eval_run: EvalRun, found: Sequence[CaseOutcome]) -> str:
    """The verdict and the figures."""
    counts = {verdict: sum(outcome.verdict == verdict for outcome in found) for verdict in MARKS}
    gates = sum(outcome.fails_eval for outcome in found)
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    head = f"{eval_run.reference}: {eval_run.verdict or eval_run.state}. {said or 'no cases'}."
    head += f" {gates} gate{'s' if gates != 1 else ''} failed." if gates else ""
    rules = f"By other rules: {eval_run.supposes}." if eval_run.rules else ""
    return "\n".join([head, *filter(None, [rules]), "", *_figures(eval_run.metrics)])


def _figures(metrics: dict[str, Any]) -> Iterator[str]:
    for name, word in _WORDS.items():
        value = metrics.get(name)
        if isinstance(value, dict) and "part" in value:
            if value["value"] is None:
                yield f"  {word:<38}      -"
                continue
            between = f"{value['low']:.0%} to {value['high']:.0%}"
            yield f"  {word:<38} {value['value']:>6.1%}  {value['part']}/{value['whole']}  ({between})"
        elif isinstance(value, dict):
            spread = "" if value["p50"] is None else f"  p50 {value['p50']:g}  p95 {value['p95']:g}"
            yield f"  {word:<38} {value['total']:>6g}{spread}"
        elif value is not None:
            yield f"  {word:<38} {value:>6}"


def comparison(found: Comparison) -> str:
    """What has changed, the worst first."""
    counts = ", ".join(f"{number} {kind}" for kind, number in found.counts.items() if number)
    lines = [f"Compared with {found.before.reference}: {counts}."]
    words = {REGRESSED: "regressed", FIXED: "fixed", CHANGED: "went differently", NEW: "is new", GONE: "is gone"}
    for kind, word in words.items():
        for each in found.of(kind):
            lines.append(f"  {each.case} {word}{'' if each.is_gate else ' (soft)'}")
            lines += [f"       {sentence}" for sentence in (*each.reasons, *each.what)]
    for figure in found.figures:
        if figure.apart:
            lines.append(
                f"  {_WORDS.get(figure.name, figure.name)}: {_plain(figure.after)}, was {_plain(figure.before)}"
            )
    for kind, names in found.versions.items():
        lines.append(f"  Other {kind}: {', '.join(names)}")
    return "\n".join(lines)


def as_json(eval_run: EvalRun, found: Sequence[CaseOutcome], compared: Comparison | None = None) -> dict[str, Any]:
    return {
        "eval": eval_run.reference,
        "id": str(eval_run.pk),
        "suite": eval_run.suite.name,
        "agent": eval_run.agent,
        "model": eval_run.model,
        "rules": {
            "with_drafts": [draft["rule"] for draft in eval_run.rules.get("drafts", [])],
            "without_rules": eval_run.rules.get("without", []),
        },
        "state": eval_run.state,
        "verdict": eval_run.verdict,
        "metrics": eval_run.metrics,
        "versions": eval_run.versions,
        "cases": [
            {
                "name": outcome.case.name,
                "kind": str(outcome.case.kind),
                "severity": str(outcome.case.severity),
                "verdict": outcome.verdict,
                "passes": outcome.passes,
                "repeats": len(outcome.results),
                "needed": outcome.case.repeats.needed,
                "reasons": outcome.reasons,
                "runs_failed": outcome.runs_failed,
                "tools_called": outcome.tools_called,
                "runs": [str(result.run_id) for result in outcome.results if result.run_id],
            }
            for outcome in found
        ],
        "comparison": compared.as_json() if compared is not None else None,
    }


def junit(eval_run: EvalRun, found: Sequence[CaseOutcome]) -> str:
    """As CI servers read it. A failing soft case is not a failure there; its output mentions it."""
    failures = [outcome for outcome in found if outcome.fails_eval and outcome.verdict == EvalResult.Verdict.FAILED]
    errors = [outcome for outcome in found if outcome.fails_eval and outcome.verdict == EvalResult.Verdict.SKIPPED]
    suite = ElementTree.Element(
        "testsuite",
        name=eval_run.suite.name,
        tests=str(len(found)),
        failures=str(len(failures)),
        errors=str(len(errors)),
        skipped="0",
        time=f"{sum(_seconds(outcome) for outcome in found):.3f}",
    )
    for outcome in found:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=outcome.case.name,
            classname=f"{eval_run.suite.name}.{outcome.case.kind}",
            time=f"{_seconds(outcome):.3f}",
        )
        if outcome.verdict == EvalResult.Verdict.PASSED:
            continue
        told = _printable("\n".join(_told(outcome)))
        if not outcome.is_gate:
            ElementTree.SubElement(case, "system-out").text = f"soft: {told}"
        else:
            what = "failure" if outcome.verdict == EvalResult.Verdict.FAILED else "error"
            ElementTree.SubElement(case, what, message=told.splitlines()[0] if told else "").text = told
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _seconds(outcome: CaseOutcome) -> float:
    return sum(observed.seconds for observed in outcome.observed)


def _printable(text: str) -> str:
    """Without characters that XML does not allow."""
    return "".join(c if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff") else "�" for c in storable(text))


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
