"""Load suites of evals, run them, and compare their results."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import evaluating
from agentapp.evals import files, reporting, results, runner, suites
from agentapp.evals.cases import Case
from agentapp.evals.comparing import Comparison, check_baseline, compare
from agentapp.models import EvalRun, EvalSuite
from agentapp.refused import Refused
from approvals import ledger

LATEST = "latest"


class Command(BaseCommand):
    help = "Load suites of evals from files, run them with mocked tools, and list and compare the results."

    def add_arguments(self, parser: CommandParser) -> None:
        does = parser.add_subparsers(dest="does", required=True)
        load = does.add_parser("load", help="Make suites what the files of their directories say.")
        load.add_argument("directory", type=Path, nargs="+")
        check = does.add_parser("check", help="Say what is wrong with the files of directories. Writes nothing.")
        check.add_argument("directory", type=Path, nargs="+")
        run = does.add_parser("run", help="Run a suite. Fails if a gate fails.")
        run.add_argument("suite", help="The name of a suite, or a directory, which is loaded first.")
        run.add_argument("--case", action="append", help="Only this case. May be given several times.")
        run.add_argument(
            "--agent",
            default="",
            help="Run cases with this agent instead of their own: all cases, or one agent's, as in old=new.",
        )
        run.add_argument("--model", default="", help="Ask this model instead of scripts and the agents' models.")
        run.add_argument(
            "--with-draft", action="append", metavar="RULE", default=[],
            help="Take the draft of this rule to be in force. May be given several times.",
        )  # fmt: skip
        run.add_argument(
            "--without-rule", action="append", metavar="RULE", default=[],
            help="Leave this rule out. May be given several times.",
        )  # fmt: skip
        run.add_argument(
            "--baseline", help=f"An eval to compare with, such as eval_1a2b3c, or {LATEST!r} under the rules in force."
        )
        run.add_argument("--json", action="store_true", help="Write one JSON document, and nothing else.")
        run.add_argument("--junit", type=Path, metavar="FILE", help="Write the results there, in JUnit's format.")
        comparing = does.add_parser("compare", help="Compare two evals.")
        comparing.add_argument("before")
        comparing.add_argument("after")
        comparing.add_argument("--json", action="store_true")
        does.add_parser("list", help="List the suites with their latest results.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['does']}")(options)
        except Refused as refused:
            raise CommandError(refused.message) from refused
        except files.FilesRefused as refused:
            raise CommandError(f"Nothing was loaded.\n{refused}") from refused
        except OSError as error:
            raise CommandError(str(error)) from error

    def _load(self, options: dict[str, Any]) -> None:
        for directory in options["directory"]:
            self._loaded(directory)

    def _check(self, options: dict[str, Any]) -> None:
        for directory in options["directory"]:
            read = files.read(directory)
            self.stdout.write(f"{read.name}: {len(read.cases)} cases.")

    def _loaded(self, directory: Path, quiet: bool = False) -> EvalSuite:
        loaded = suites.load(directory, ledger.actor_of(None, "evals load"))
        if not quiet:
            number = loaded.suite.cases.count()
            what = [
                f"{len(each)} {word}" for word in ("added", "changed", "removed") if (each := getattr(loaded, word))
            ]
            self.stdout.write(f"{loaded.suite.name}: {number} cases{', ' if what else ''}{', '.join(what)}.")
        return loaded.suite

    def _run(self, options: dict[str, Any]) -> None:
        quiet, path = options["json"], Path(options["suite"])
        suite = self._loaded(path, quiet) if path.is_dir() else evaluating.find_suite(options["suite"])
        evaluating.check_agent(options["agent"])
        rules = evaluating.supposed(options["with_draft"], options["without_rule"])
        cases = evaluating.chosen(suite, options["case"])
        baseline = self._baseline(suite, cases, options["baseline"])
        made = results.create(
            suite, cases, agent=options["agent"], model=options["model"], baseline=baseline, rules=rules,
            actor=ledger.actor_of(None, "evals run"),
        )  # fmt: skip
        told = None if quiet else lambda outcome: self.stdout.write(reporting.line(outcome))
        try:
            if runner.go_on(made.pk, seconds=float("inf"), told=told):
                raise CommandError(f"{made.reference} did not finish.")
        except KeyboardInterrupt:
            # Otherwise workers would find it and go on with what somebody has stopped.
            results.cancel(made.pk, ledger.actor_of(None, "evals run"))
            raise
        made = evaluating.find_eval(made.pk)
        found = runner.outcomes(made)
        compared = compare(baseline, made) if baseline is not None else None
        if options["junit"]:
            options["junit"].write_text(reporting.junit(made, found), "utf-8")
        if quiet:
            self.stdout.write(json.dumps(reporting.as_json(made, found, compared), indent=2, ensure_ascii=False))
        else:
            self.stdout.write(f"\n{reporting.summary(made, found)}")
            self._say(compared)
        if made.verdict != EvalRun.Verdict.PASSED:
            raise CommandError(f"{made.reference} failed.", returncode=1)

    def _compare(self, options: dict[str, Any]) -> None:
        compared = compare(evaluating.find_eval(options["before"]), evaluating.find_eval(options["after"]))
        if options["json"]:
            self.stdout.write(json.dumps(compared.as_json(), indent=2, ensure_ascii=False))
        else:
            self._say(compared)

    def _list(self, options: dict[str, Any]) -> None:
        for suite in EvalSuite.objects.all():
            last = suite.runs.filter(state=EvalRun.State.FINISHED).first()
            said = f"{last.reference} {last.verdict}, {last.finished_at:%Y-%m-%d %H:%M}" if last else "never run"
            self.stdout.write(f"{suite.name:<32} {suite.cases.count():>4} cases  {said}")

    def _say(self, compared: Comparison | None) -> None:
        if compared is not None:
            self.stdout.write(f"\n{reporting.comparison(compared)}")

    def _baseline(self, suite: EvalSuite, cases: Sequence[Case], named: str | None) -> EvalRun | None:
        if not named:
            return None
        if named != LATEST:
            named_run = evaluating.find_eval(named)
            check_baseline(suite, named_run)
            return named_run
        found = results.latest(suite, cases)
        if found is None:
            raise CommandError(f"{suite.name} has not been run before, so there is nothing to compare with.")
        return found
