import json
import uuid
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import erasing
from agentapp.refused import Refused
from approvals import ledger, signatures
from approvals.models import Checkpoint, Verification
from approvals.proof import status, verifying
from approvals.proof.chains import Scope
from approvals.signatures import Broken


class Command(BaseCommand):
    help = (
        "Recompute the ledger's chains, check every checkpoint and every signed decision, and name the first that does "
        "not hold. If there is one, exit with status 1."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--run", help="Only the chain of this run, by its id or its reference.")
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        chain = _chain(options["run"]) if options["run"] else None
        found = verifying.look(Scope(chain) if chain else None)
        signed, forged = signatures.verify_all(chain)
        if options["json"]:
            said = {"holds": not found.broken and not forged, "events": found.events, "first_broken": found.broken}
            said |= {
                "checkpoints": found.checkpoints,
                "keys": _keys(found),
                "signed": signed,
                "first_unsigned": _named(forged),
            }
            self.stdout.write(json.dumps(said))
        else:
            self._say(found, signed, forged)
        if found.broken or forged:
            raise SystemExit(1)

    def _say(self, found: Verification, signed: int, forged: Broken | None) -> None:
        if found.broken is None:
            self.stdout.write(f"The ledger holds: {found.events} events.")
            if found.whole:
                self._say_anchored(found)
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

    def _say_anchored(self, found: Verification) -> None:
        now, checkpoints = status.standing(), found.checkpoints
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
        for key in _keys(found):
            self.stdout.write(f"  signed with the key {key}")


def _keys(found: Verification) -> list[str]:
    """The fingerprints of the keys that checkpoints were checked with, in the order of their first use."""
    held = Checkpoint.objects.filter(number__lte=found.checkpoints)
    return list(dict.fromkeys(held.order_by("number").values_list("key_id", flat=True)))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _named(forged: Broken | None) -> dict[str, Any] | None:
    """What does not hold, as JSON."""
    return {**asdict(forged), "decision": str(forged.decision)} if forged else None


def _chain(run: str) -> str:
    try:
        chain = ledger.run_chain(_run_id(run))
    except Refused as error:
        raise CommandError(f"{run!r}: {error.message}") from error
    if not ledger.height(chain):
        raise CommandError(f"The run {run} has no events.")
    return chain


def _run_id(run: str) -> uuid.UUID:
    """A chain outlives its run, so an id needs no row."""
    try:
        return uuid.UUID(run)
    except ValueError:
        return erasing.run_named(run)
