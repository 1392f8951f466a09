"""How decisions were judged afterwards, whether their reader may judge them, and the cases made from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from agentapp import auth, evaluating
from agentapp.console.evals import VIEW_RIGHT
from agentapp.models import EvalCase, Run
from approvals import judgements
from approvals.models import Decision, DecisionType, Judgement

DID: Mapping[str, str] = {
    DecisionType.APPROVE: "approved",
    DecisionType.EDIT: "approved with changes",
    DecisionType.REJECT: "rejected",
    DecisionType.RESPOND: "responded in the tool’s place",
}
HUES = {Judgement.Mark.GOOD: "ok", Judgement.Mark.WRONG: "wait", Judgement.Mark.HARMFUL: "bad"}


@dataclass(frozen=True)
class Judged:
    """One decision with its judgements, the last first."""

    decision: Decision
    said: Sequence[Judgement]
    may_judge: bool = False
    case: EvalCase | None = None
    may_make_case: bool = False

    @property
    def did(self) -> str:
        """What was done, to follow the decider's name in a sentence."""
        return DID[self.decision.type]

    @property
    def last(self) -> Judgement | None:
        return self.said[0] if self.said else None

    @property
    def hue(self) -> str:
        return hue(self.last.mark) if self.last is not None else ""

    @property
    def is_stale(self) -> bool:
        """Whether its judgement has changed since its case was made."""
        return self.case is not None and self.last is not None and self.case.judged != self.last.mark


def hue(mark: str) -> str:
    return next((hue for name, hue in HUES.items() if name == mark), "")


def context(decisions: Iterable[Decision], run: Run | None, user: User) -> dict[str, Any]:
    """What `_judged.html` shows."""
    return {
        "judged": of(decisions, run, user),
        "marks": Judgement.Mark.choices,
        "judge_chars": judgements.MAX_CHARS,
    }


def of(decisions: Iterable[Decision], run: Run | None, user: User) -> list[Judged]:
    """The decisions that were judged or that this person may judge. Needs no query if there are none."""
    made = [decision for decision in decisions if not decision.mocked]
    if not made:
        return []
    said = judgements.of(made)
    sees = user.has_perm(VIEW_RIGHT) and bool(said)
    cases = {case.decision: case for case in _cases(said) if sees} if sees else {}
    may_make = sees and run is not None and _may_make(run, user)
    found = [
        Judged(
            decision,
            said.get(decision.pk, ()),
            judgements.barred(decision, user) is None,
            cases.get(decision.pk),
            may_make and bool(said.get(decision.pk)),
        )
        for decision in made
    ]
    return [each for each in found if each.said or each.may_judge]


def _cases(decisions: Iterable[object]) -> Iterable[EvalCase]:
    found = EvalCase.objects.filter(decision__in=list(decisions)).select_related("suite")
    return found.defer("document").order_by("created_at")


def _may_make(run: Run, user: User) -> bool:
    return evaluating.may_write(user) and auth.may_see(user, run) and not evaluating.hindrance_of(run)
