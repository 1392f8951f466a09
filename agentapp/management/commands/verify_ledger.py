import json
import uuid
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import ledger, signatures
from approvals.models import Checkpoint, Verification
from approvals.proof import status, verifying
from approvals.proof.chains import Scope
from approvals.signatures import Broken


class Command(BaseCommand):
    help = (
        "Recompute the ledger's chains, check every checkpoint and every signed decision, and name the first that does "
        "not hold. Exits 1 when there is one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--run", help="Only the chain of this run, by its id.")
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        chain = _chain(options["run"]) if options["run"] else None
        found = verifying.look(Scope(chain) if chain else None)
        signed, forged = signatures.verify_all(chain)
        if options["json"]:
            said = {"holds": not found.broken and not forged, "events": found.events, "first_broken": found.broken}
            said |= {"checkpoints": found.checkpoints, "signed": signed, "first_unsigned": _named(forged)}
            self.stdout.write(json.dumps(said))
        else:
            self._say(found, signed, forged)
        if found.broken or forged:
            raise SystemExit(1)

    def _say(self, found: Verification, signed: int, forged: Broken | None) -> None:
        if found.broken is None:
            self.stdout.write(f"The ledger holds: {found.events} events.")
            if found.whole:
                self._say_anchored(found.checkpoints)
        else:
            self.stderr.write(f"{verifying.named(found.broken)} The {found.events} events checked before it hold.")
            for beside in ("before", "found", "after"):
                if event := found.broken[beside]:
                    self.stderr.write(f"  {beside}: {event['seq']} {event['type']} {event['at']} {event['hash']}")
        if forged is not None:
            self.stderr.write(
                f"The signed decision {forged.decision} about {forged.reference} does not hold: {forged.problem}. "
                f"Besides, {_counted(signed, 'signed decision')} verified."
            )
        elif signed:
            self.stdout.write(f"The signatures hold: {_counted(signed, 'signed decision')}.")

    def _say_anchored(self, checkpoints: int) -> None:
        now = status.standing()
        if now.not_anchored:
            self.stderr.write(f"Nothing vouches for what comes now. {now.not_anchored}")
        if not checkpoints and Checkpoint.objects.exists():
            self.stderr.write("The checkpoints cannot be vouched for: name their keys in LEDGER_TRUSTED_KEYS.")
        if not checkpoints or now.anchored_at is None:
            return
        self.stdout.write(
            f"The checkpoints hold: {checkpoints}, the last of {now.anchored_at:%Y-%m-%d %H:%M} UTC over "
            f"{_counted(now.anchored_events, 'event')}: {now.anchored}"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _named(forged: Broken | None) -> dict[str, Any] | None:
    """What does not hold, as JSON says it."""
    return {**asdict(forged), "decision": str(forged.decision)} if forged else None


def _chain(run: str) -> str:
    try:
        chain = ledger.run_chain(uuid.UUID(run))
    except ValueError as error:
        raise CommandError(f"{run!r} is not the id of a run.") from error
    if not ledger.height(chain):
        raise CommandError(f"The run {run} has no events.")
    return chain
