"""The only writer of EvalSuite and EvalCase: cases from files, and those that people write."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db.models import Exists, OuterRef
from django.utils import timezone
from pydantic import ValidationError

from agentapp.evals import files, results
from agentapp.evals.cases import Case
from agentapp.evals.results import CHAIN
from agentapp.models import EvalCase, EvalResult, EvalSuite, Run
from approvals import ledger
from approvals.models import Judgement


@dataclass(frozen=True)
class Loaded:
    """A suite after its files were read, and the names of the cases that changed."""

    suite: EvalSuite
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def load(directory: Path, actor: str = ledger.SYSTEM) -> Loaded:
    """Make a suite match its files; cases not in them are removed. Raises FilesRefused, and then writes nothing."""
    read = files.read(directory)
    with ledger.transaction():
        if EvalSuite.objects.filter(name=read.name, directory="", cases__isnull=False).exists():
            said = f"people have written cases of {read.name} in the console: delete them there, or choose another name"
            raise files.FilesRefused([files.Problem(files.SUITE, 1, "name", said)])
        suite = _suite(read.name, actor, description=read.description, directory=str(directory.resolve()))
        known = {case.name: case for case in suite.cases.all()}
        added = [case.name for case in read.cases if case.name not in known]
        changed = [case.name for case in read.cases if case.name in known and known[case.name].digest != case.digest]
        removed = sorted(known.keys() - {case.name for case in read.cases})
        for case in read.cases:
            _store(suite, case, file=read.files[case.name])
        suite.cases.filter(name__in=removed).delete()
        if added or changed or removed:
            data = {"suite": suite.name, "added": added, "changed": changed, "removed": removed}
            ledger.record(CHAIN, "eval.suite_loaded", data, actor)
    return Loaded(suite, tuple(added), tuple(changed), tuple(removed))


def create(name: str, description: str, actor: str) -> EvalSuite:
    """A suite for cases that people write, or the one that has this name."""
    with ledger.transaction():
        return _suite(name, actor, description=description)


def save_case(
    suite: EvalSuite,
    case: Case,
    actor: str,
    *,
    row: EvalCase | None = None,
    made_of: Run | None = None,
    judgement: Judgement | None = None,
) -> EvalCase:
    """Store a case as somebody has written it. It replaces one with its name, and `row` is renamed to it.

    `judgement`: the one it is made for.
    """
    judged = {"decision": judgement.decision_id, "judged": judgement.mark} if judgement is not None else {}
    with ledger.transaction():
        if row is not None and row.name != case.name:
            EvalCase.objects.filter(pk=row.pk).update(name=case.name)
            said = {"suite": suite.name, "case": row.name, "name": case.name}
            ledger.record(CHAIN, "eval.case_renamed", said, actor)
        row = _store(suite, case, made_of=made_of, **judged)
        ledger.record(CHAIN, "eval.case_saved", {"suite": suite.name, "case": case.name, "digest": row.digest}, actor)
    return row


def remove_case(case: EvalCase, actor: str) -> None:
    """Delete a case. What evals have kept of it stays, unless it was made from a run: nobody could find it to erase."""
    with ledger.transaction():
        if case.made_of_id is not None:
            results.forget_words(case.suite_id, case.name)
        ledger.record(CHAIN, "eval.case_removed", {"suite": case.suite.name, "case": case.name}, actor)
        case.delete()


def runs_of(case: EvalCase) -> list[uuid.UUID]:
    """The mocked runs of a case."""
    found = EvalResult.objects.filter(eval_run__suite=case.suite_id, case=case.name, run__isnull=False)
    return list(found.order_by("pk").values_list("run", flat=True))


def runs_of_cases_made_of(run_ids: Collection[uuid.UUID]) -> list[uuid.UUID]:
    """The mocked runs of cases made from these runs, whose words they were given."""
    made = EvalCase.objects.filter(made_of__in=run_ids, suite=OuterRef("eval_run__suite"), name=OuterRef("case"))
    found = EvalResult.objects.filter(Exists(made), run__isnull=False)
    return list(found.order_by("pk").values_list("run", flat=True))


def forget(run_ids: Collection[uuid.UUID]) -> int:
    """Delete the cases made from these runs, and the words that evals have kept of them. Returns how many cases."""
    made = EvalCase.objects.filter(made_of__in=run_ids).select_related("suite")
    for row in made:
        results.forget_words(row.suite_id, row.name)
    return made.delete()[1].get("agentapp.EvalCase", 0)


def case_of(row: EvalCase) -> Case:
    """A case as it was written."""
    return read_case(row.document)


def read_kept(document: dict[str, Any]) -> Case:
    """A case that an eval has kept. An older one that can no longer be read is shown only by its name."""
    try:
        return read_case(document)
    except ValidationError:
        said: dict[str, Any] = {
            "name": document.get("name"),
            "kind": "positive",
            "agent": UNREADABLE,
            "input": UNREADABLE,
            "expect": {},
        }
        return read_case(said)


UNREADABLE = "(this case can no longer be read)"


def read_case(document: dict[str, Any]) -> Case:
    """Raises pydantic.ValidationError if it is not a case."""
    return Case.model_validate(document, strict=False)


def _suite(name: str, actor: str, **columns: Any) -> EvalSuite:
    now = timezone.now()
    suite, made = EvalSuite.objects.get_or_create(name=name, defaults={**columns, "created_at": now, "updated_at": now})
    if made:
        ledger.record(CHAIN, "eval.suite_made", {"suite": name}, actor)
    elif columns.get("directory"):
        for column, value in columns.items():
            setattr(suite, column, value)
        suite.updated_at = now
        suite.save()
    return suite


def _store(suite: EvalSuite, case: Case, **more: Any) -> EvalCase:
    now = timezone.now()
    columns = {
        "kind": str(case.kind),
        "severity": str(case.severity),
        "description": case.description,
        "agent": case.agent,
        "document": case.document,
        "digest": case.digest,
        "updated_at": now,
        **more,
    }
    row, _ = EvalCase.objects.update_or_create(
        suite=suite, name=case.name, defaults=columns, create_defaults={**columns, "created_at": now}
    )
    return row
