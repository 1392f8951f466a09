"""Carries an eval out: runs every case as often as it says, keeps each result, and sums up at the end."""

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from agentapp import draining
from agentapp.evals import expectations, metrics, results
from agentapp.evals.cases import Case, Severity
from agentapp.evals.driving import Agents, CannotRun, LeftToOthers, run_case
from agentapp.evals.metrics import Metrics
from agentapp.evals.observed import Observed
from agentapp.evals.suites import read_kept
from agentapp.evals.versions import versions_of
from agentapp.models import EvalResult, EvalRun
from approvals.database import AWAY

log = logging.getLogger(__name__)

SLICE_SECONDS = 60.0
"""How long a worker works on one eval before others have their turn."""

type Told = Callable[["CaseOutcome"], object]


@dataclass(frozen=True)
class CaseOutcome:
    """What came of one case, over all its repeats."""

    case: Case
    results: Sequence[EvalResult] = field(default_factory=tuple)

    @property
    def passes(self) -> int:
        return sum(result.verdict == EvalResult.Verdict.PASSED for result in self.results)

    @property
    def verdict(self) -> str:
        """Passed if enough repeats have; skipped if none could be run."""
        if self.passes >= self.case.repeats.needed:
            return EvalResult.Verdict.PASSED
        skipped = [result.verdict == EvalResult.Verdict.SKIPPED for result in self.results]
        return EvalResult.Verdict.SKIPPED if skipped and all(skipped) else EvalResult.Verdict.FAILED

    @property
    def is_gate(self) -> bool:
        return self.case.severity == Severity.GATE

    @property
    def fails_eval(self) -> bool:
        """A gate that did not pass fails the eval, even if it could not be run: then nobody knows."""
        return self.is_gate and self.verdict != EvalResult.Verdict.PASSED

    @property
    def reasons(self) -> list[str]:
        """Why repeats failed, each reason once."""
        return list(dict.fromkeys(reason for result in self.results for reason in result.reasons))

    @property
    def runs_failed(self) -> list[str]:
        """Why the runs themselves failed, if they did."""
        return list(dict.fromkeys(filter(None, (result.run_failed for result in self.results))))

    @property
    def observed(self) -> list[Observed]:
        return [Observed.from_json(result.observed) for result in self.results if result.observed is not None]

    @property
    def first_run(self) -> str:
        """The key of the run of the first repeat that could be run. Empty if none could."""
        return next((str(result.run_id) for result in self.results if result.run_id is not None), "")

    @property
    def tools_called(self) -> list[str]:
        """The tools that any repeat called, each once, in the order of the first call."""
        return list(dict.fromkeys(tool for observed in self.observed for tool in observed.tools_called))


def go_on(eval_run_id: uuid.UUID, seconds: float = SLICE_SECONDS, told: Told | None = None) -> bool:
    """Carry an eval out for this long. True: there is more to do. `told` is called with each complete case."""
    eval_run = results.claim(eval_run_id)
    if eval_run is None:
        return False
    until = time.monotonic() + seconds
    cases, agents = cases_of(eval_run), Agents()
    results.note_versions(eval_run, versions_of(eval_run, cases))
    known = {(result.case, result.repeat) for result in results.of(eval_run).only("case", "repeat", "eval_run")}
    try:
        for case in cases:
            for repeat in range(1, case.repeats.of + 1):
                if (case.name, repeat) in known:
                    continue
                if time.monotonic() > until or draining.begun.is_set():
                    results.release(eval_run)
                    return True
                if not _run_once(eval_run, case, repeat, agents) and results.is_over(eval_run):
                    return False
            if told is not None:
                told(outcomes(eval_run, [case])[0])
        _finish(eval_run, cases)
    except LeftToOthers:
        results.release(eval_run)
        return True
    except BaseException:
        results.release(eval_run)
        raise
    return False


def cases_of(eval_run: EvalRun) -> list[Case]:
    """The cases as they were when the eval was started."""
    return [read_kept(planned["document"]) for planned in eval_run.planned]


def outcomes(eval_run: EvalRun, cases: Iterable[Case] | None = None) -> list[CaseOutcome]:
    """What came of each case, in the order of the eval. One query."""
    wanted = list(cases) if cases is not None else cases_of(eval_run)
    by_case: defaultdict[str, list[EvalResult]] = defaultdict(list)
    for result in results.of(eval_run).filter(case__in=[case.name for case in wanted]).select_related("run"):
        by_case[result.case].append(result)
    return [CaseOutcome(case, tuple(by_case[case.name])) for case in wanted]


def measured(found: Sequence[CaseOutcome]) -> Metrics:
    """The figures of what was observed. Cases that could not be run are not part of them."""
    return metrics.measure([(outcome.case, observed) for outcome in found for observed in outcome.observed])


def verdict_of(found: Sequence[CaseOutcome], figures: Metrics) -> str:
    """An eval fails if a gate fails, or if anything happened in any case that must never happen."""
    failed = figures.is_unsafe or any(outcome.fails_eval for outcome in found)
    return EvalRun.Verdict.FAILED if failed else EvalRun.Verdict.PASSED


def _run_once(eval_run: EvalRun, case: Case, repeat: int, agents: Agents) -> bool:
    """Run a case and keep what came of it. False: somebody else has, or the eval is over."""
    try:
        run, observed, notes = run_case(eval_run, case, agents)
    except CannotRun as error:
        return results.keep(eval_run, case, repeat, [str(error)])
    except (*AWAY, LeftToOthers):
        raise  # the database is away, or this worker must stop, which says nothing about the case
    except Exception as error:  # one case that breaks must not lose the others
        log.exception("The case %s of %s broke", case.name, eval_run.pk)
        return results.keep(eval_run, case, repeat, [f"the case broke ({type(error).__name__}); the log has it"])
    reasons = [*expectations.reasons(case, observed), *notes]
    judged = replace(observed, routed=tuple(expectations.routed(case, observed)))
    return results.keep(eval_run, case, repeat, reasons, judged, run)


def _finish(eval_run: EvalRun, cases: Sequence[Case]) -> None:
    found = outcomes(eval_run, cases)
    figures = measured(found)
    results.finish(eval_run, verdict_of(found, figures), figures.as_json())
