import json
import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import ledger


class Command(BaseCommand):
    help = "Recompute the ledger's chains and name the first event that does not hold. Exits 1 when there is one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--run", help="Only the chain of this run, by its id.")
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        held, broken = ledger.verify(_chain(options["run"]) if options["run"] else None)
        if options["json"]:
            first = {"chain": broken.chain, "seq": broken.seq, "problem": broken.problem} if broken else None
            self.stdout.write(json.dumps({"holds": broken is None, "events": held, "first_broken": first}))
        elif broken is None:
            self.stdout.write(f"The ledger holds: {held} events.")
        else:
            self.stderr.write(
                f"The ledger is broken at {broken.chain}, event {broken.seq}: {broken.problem}. "
                f"The {held} events checked before it hold."
            )
        if broken:
            raise SystemExit(1)


def _chain(run: str) -> str:
    try:
        chain = ledger.run_chain(uuid.UUID(run))
    except ValueError as error:
        raise CommandError(f"{run!r} is not the id of a run.") from error
    if not ledger.height(chain):
        raise CommandError(f"The run {run} has no events.")
    return chain
