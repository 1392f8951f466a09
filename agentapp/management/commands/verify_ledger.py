import json
import uuid
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import ledger, signatures
from approvals.ledger import Break
from approvals.signatures import Broken


class Command(BaseCommand):
    help = (
        "Recompute the ledger's chains, check every signed decision, and name the first of each that does not hold. "
        "Exits 1 when there is one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--run", help="Only the chain of this run, by its id.")
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        chain = _chain(options["run"]) if options["run"] else None
        held, broken = ledger.verify(chain)
        signed, forged = signatures.verify_all(chain)
        if options["json"]:
            said = {"holds": broken is None, "events": held, "first_broken": _named(broken)}
            self.stdout.write(json.dumps(said | {"signed": signed, "first_unsigned": _named(forged)}))
        else:
            self._say(held, broken, signed, forged)
        if broken or forged:
            raise SystemExit(1)

    def _say(self, held: int, broken: Break | None, signed: int, forged: Broken | None) -> None:
        if broken is None:
            self.stdout.write(f"The ledger holds: {held} events.")
        else:
            self.stderr.write(
                f"The ledger is broken at {broken.chain}, event {broken.seq}: {broken.problem}. "
                f"The {held} events checked before it hold."
            )
        if forged is not None:
            self.stderr.write(
                f"The signed decision {forged.decision} about {forged.reference} does not hold: {forged.problem}. "
                f"Besides, {_counted(signed, 'signed decision')} verified."
            )
        elif signed:
            self.stdout.write(f"The signatures hold: {_counted(signed, 'signed decision')}.")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _named(found: Break | Broken | None) -> dict[str, Any] | None:
    """What does not hold, as JSON says it."""
    return {name: str(v) if isinstance(v, uuid.UUID) else v for name, v in asdict(found).items()} if found else None


def _chain(run: str) -> str:
    try:
        chain = ledger.run_chain(uuid.UUID(run))
    except ValueError as error:
        raise CommandError(f"{run!r} is not the id of a run.") from error
    if not ledger.height(chain):
        raise CommandError(f"The run {run} has no events.")
    return chain
