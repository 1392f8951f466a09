import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import ledger
from approvals.proof import export
from approvals.proof.signing_key import NoKey


class Command(BaseCommand):
    help = (
        "Write the whole ledger as lines of JSON with a signed manifest, for approvals/proof/verify_export.py, which "
        "checks it without Countersign."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--output", help="The file to write. Without it, the lines go to standard output.")

    def handle(self, *args: Any, **options: Any) -> None:
        lines = export.lines(ledger.actor_of(None, "export_ledger"))
        try:
            if options["output"]:
                _write(Path(options["output"]), lines)
            else:
                for line in lines:
                    sys.stdout.buffer.write(line)
        except NoKey as error:
            raise CommandError(f"The export cannot be signed. {error}") from error
        except OSError as error:
            raise CommandError(f"{options['output']} cannot be written: {error.strerror}.") from error


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """Write an export to a path. If that fails, an earlier file there stays as it was."""
    path = path.resolve()
    if path.exists() and not path.is_file():  # a pipe or a device
        with path.open("wb") as file:
            file.writelines(lines)
        return
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        # Only its owner may read it, and decides who else gets it.
        part.touch(mode=0o600, exist_ok=False)
        with part.open("wb") as file:
            file.writelines(lines)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
