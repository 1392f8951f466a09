"""Compares two evals, case by case: what got worse, what got better and what else has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentapp.evals.observed import Call, Observed
from agentapp.evals.runner import CaseOutcome, outcomes
from agentapp.models import EvalResult, EvalRun, EvalSuite
from agentapp.refused import Refused

PASSED = EvalResult.Verdict.PASSED
REGRESSED, FIXED, CHANGED, SAME, NEW, GONE = "regressed", "fixed", "changed", "same", "new", "gone"
# The worst first.
ORDER = (REGRESSED, CHANGED, NEW, GONE, FIXED, SAME)


@dataclass(frozen=True)
class CaseDifference:
    """One case in two evals. `what` lists the differences, a sentence each; `reasons` says why it fails now.

    `run_before` and `run_after` are the keys of the runs of the first repeats, which `what` describes.
    """

    case: str
    kind: str
    before: str = ""
    after: str = ""
    reasons: tuple[str, ...] = ()
    what: tuple[str, ...] = ()
    is_gate: bool = True
    run_before: str = ""
    run_after: str = ""


@dataclass(frozen=True)
class FigureDifference:
    """One figure in two evals. `apart`: their intervals do not overlap, so chance is an unlikely reason."""

    name: str
    before: float | None
    after: float | None
    apart: bool = False


@dataclass(frozen=True)
class Comparison:
    """An eval compared with an earlier one."""

    before: EvalRun
    after: EvalRun
    cases: tuple[CaseDifference, ...] = ()
    figures: tuple[FigureDifference, ...] = ()
    versions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By kind, what has another version or is in only one of the two."""

    def of(self, kind: str) -> list[CaseDifference]:
        return [each for each in self.cases if each.kind == kind]

    @property
    def counts(self) -> dict[str, int]:
        return {kind: len(self.of(kind)) for kind in ORDER}

    def as_json(self) -> dict[str, Any]:
        return {
            "before": self.before.reference,
            "after": self.after.reference,
            "counts": self.counts,
            "cases": [asdict(each) for each in self.cases if each.kind != SAME],
            "figures": [asdict(each) for each in self.figures],
            "versions": {kind: list(names) for kind, names in self.versions.items()},
        }


def compare(before: EvalRun, after: EvalRun) -> Comparison:
    """Two finished evals of one suite. Four queries. Raises Refused for others: cases not run would seem worse."""
    for each in (before, after):
        check_baseline(after.suite, each)
    was = {outcome.case.name: outcome for outcome in outcomes(before)}
    now = {outcome.case.name: outcome for outcome in outcomes(after)}
    cases = [_case(was.get(name), now.get(name), name) for name in {**was, **now}]
    cases.sort(key=lambda each: (ORDER.index(each.kind), not each.is_gate, each.case))
    return Comparison(
        before, after, tuple(cases), tuple(_figures(before.metrics, after.metrics)), _versions(before, after)
    )


def check_baseline(suite: EvalSuite, eval_run: EvalRun) -> None:
    """Raises Refused if evals of a suite cannot be compared with this one."""
    if eval_run.suite_id != suite.pk:
        said = f"{eval_run.reference} is of the suite {eval_run.suite.name}, not of {suite.name}."
        raise Refused("invalid", f"{said} Only evals of the same suite can be compared.", "baseline")
    if eval_run.state != EvalRun.State.FINISHED:
        how = "was cancelled" if eval_run.state == EvalRun.State.CANCELLED else "has not finished yet"
        said = f"{eval_run.reference} {how}, so cases it has not run would seem to have got worse."
        raise Refused("unfinished", f"{said} Only finished evals can be compared.", "baseline")


def _case(was: CaseOutcome | None, now: CaseOutcome | None, name: str) -> CaseDifference:
    if was is None or now is None:
        return _of_one(was, now, name)
    what = tuple(_what(was, now))
    if now.verdict != was.verdict and PASSED in (now.verdict, was.verdict):
        kind = FIXED if now.verdict == PASSED else REGRESSED
    else:
        kind = CHANGED if what else SAME
    return CaseDifference(
        name, kind, was.verdict, now.verdict, tuple(now.reasons), what, now.is_gate, was.first_run, now.first_run
    )


def _of_one(was: CaseOutcome | None, now: CaseOutcome | None, name: str) -> CaseDifference:
    if now is not None:
        return CaseDifference(
            name, NEW, after=now.verdict, reasons=tuple(now.reasons), is_gate=now.is_gate, run_after=now.first_run
        )
    assert was is not None
    return CaseDifference(name, GONE, before=was.verdict, is_gate=was.is_gate, run_before=was.first_run)


def _what(was: CaseOutcome, now: CaseOutcome) -> list[str]:
    found = []
    if was.case.digest != now.case.digest:
        found.append("the case itself was changed")
    if was.passes != now.passes or len(was.results) != len(now.results):
        found.append(f"passed {was.passes} of {len(was.results)}, now {now.passes} of {len(now.results)}")
    found += [f"no longer: {reason}" for reason in was.reasons if reason not in now.reasons]
    if was.observed and now.observed:
        found += _observed(was.observed[0], now.observed[0])
    return found


def _observed(was: Observed, now: Observed) -> list[str]:
    """What went differently in the first repeat. Times are not compared."""
    found = []
    if was.tools_called != now.tools_called:
        found.append(f"called {_names(now.tools_called)} instead of {_names(was.tools_called)}")
    for name in ("final_status", "stop_reason", "steps"):
        if getattr(was, name) != getattr(now, name):
            found.append(f"{name} {getattr(now, name) or 'none'} instead of {getattr(was, name) or 'none'}")
    before, after = _by_place(was.calls), _by_place(now.calls)
    for place in before.keys() & after.keys():
        found += _call(before[place], after[place])
    return sorted(found, key=lambda sentence: not sentence.startswith("called "))


def _by_place(calls: Sequence[Call]) -> dict[tuple[str, int], Call]:
    """Calls by their tool and the number of earlier calls to it."""
    found: dict[tuple[str, int], Call] = {}
    for call in calls:
        found[call.tool, sum(tool == call.tool for tool, _ in found)] = call
    return found


def _call(was: Call, now: Call) -> list[str]:
    found = []
    if was.verdict != now.verdict:
        found.append(f"{now.tool}: {_gate(now)} instead of {_gate(was)}")
    elif [(each.groups, each.customer) for each in was.asked] != [(each.groups, each.customer) for each in now.asked]:
        found.append(f"{now.tool}: asked {_asked(now)} instead of {_asked(was)}")
    if was.rule != now.rule:
        found.append(f"{now.tool}: rule {now.rule or 'none'} instead of {was.rule or 'none'}")
    if (was.status, was.reason) != (now.status, now.reason):
        found.append(f"{now.tool}: {_came(now)} instead of {_came(was)}")
    if was.arguments_digest and now.arguments_digest not in ("", was.arguments_digest):
        found.append(f"{now.tool}: different arguments")
    return found


def _figures(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[FigureDifference]:
    found = []
    for name, value in now.items():
        earlier = was.get(name)
        if isinstance(value, dict) and "part" in value:
            found.append(FigureDifference(name, (earlier or {}).get("value"), value["value"], _apart(earlier, value)))
        elif isinstance(value, dict):
            for part in ("total", "p50", "p95"):
                found.append(FigureDifference(f"{name}_{part}", (earlier or {}).get(part), value[part]))
        else:
            found.append(FigureDifference(name, earlier, value, apart=earlier not in (None, value)))
    return found


def _apart(was: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    if was is None or was["low"] is None or now["low"] is None:
        return False
    return bool(was["high"] < now["low"] or now["high"] < was["low"])


def _versions(before: EvalRun, after: EvalRun) -> dict[str, tuple[str, ...]]:
    found = {}
    for kind in {**before.versions, **after.versions}:
        was, now = before.versions.get(kind, {}), after.versions.get(kind, {})
        names = tuple(sorted(name for name in {**was, **now} if was.get(name) != now.get(name)))
        if names:
            found[kind] = names
    return found


def _names(tools: Sequence[str]) -> str:
    return ", ".join(tools) or "nothing"


def _gate(call: Call) -> str:
    return {"allow": "allowed", "ask": f"asked {_asked(call)}", "deny": "refused"}.get(call.verdict, "not at the gate")


def _asked(call: Call) -> str:
    if not call.asked:
        return "nobody"
    first = call.asked[0]
    return "the customer" if first.customer else ", ".join(first.groups) or "everybody who may decide"


def _came(call: Call) -> str:
    return f"{call.status} ({call.reason})" if call.reason else call.status or "nothing"
