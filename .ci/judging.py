"""What the pictures of evals and of judged decisions show: a suite run twice, and a manager's judgements."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from story import Story

from agentapp import actions, evaluating
from agentapp.evals import results, runner, suites
from agentapp.models import EvalRun
from approvals import configuration
from approvals.models import Decision, Rule

SUITE = Path(__file__).resolve().parent.parent / "agentapp" / "demo" / "evals"
BY = "system:demo"


@contextmanager
def evals(story: Story) -> Iterator[None]:
    """The shop's suite runs, and runs again with a rule that refuses refunds."""
    if "eval" not in story.keys:
        suite = suites.load(SUITE, BY).suite
        base = results.create(suite, evaluating.chosen(suite), starter=story.people["ada"])
        runner.go_on(base.pk, seconds=float("inf"))
        rule = Rule(name="no-refunds", tool="refund_payment", verdict="deny", order=0)
        configuration.save(rule, BY)
        again = results.create(suite, evaluating.chosen(suite), starter=story.people["ada"], baseline=base)
        runner.go_on(again.pk, seconds=float("inf"))
        configuration.delete(rule, BY)
        failed = EvalRun.objects.get(pk=again.pk).results.filter(verdict="failed").order_by("case").first()
        assert failed is not None
        story.keys |= {"suite": suite.name, "eval": str(again.pk), "base": str(base.pk), "case": failed.case}
    yield


@contextmanager
def judged(story: Story) -> Iterator[None]:
    """A manager has changed her mind about one decision, and it is made into a case."""
    if "judged" not in story.keys:
        decision = Decision.objects.get(approval=story.keys["done"])
        mia = story.people["mia"]
        actions.judge_decision(decision.pk, "good", "The photo shows the damage, and it is within 30 days.", mia)
        judgement = actions.judge_decision(
            decision.pk, "wrong", "The same damage was paid for in March: look at the earlier tickets first.", mia
        )
        run = decision.approval.execution.run
        case = evaluating.save_judged(run, judgement, story.people["ada"])
        runner.go_on(results.create(case.suite, evaluating.chosen(case.suite)).pk, seconds=float("inf"))
        story.keys |= {
            "judged": str(decision.approval_id), "judged_event": str(judgement.event), "judged_case": case.name,
        }  # fmt: skip
    yield
