import sys
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
                # Whatever is in it is for its owner to hand on.
                path = Path(options["output"])
                path.touch(mode=0o600)
                with path.open("wb") as file:
                    file.writelines(lines)
            else:
                for line in lines:
                    sys.stdout.buffer.write(line)
        except NoKey as error:
            raise CommandError(f"The export cannot be signed. {error}") from error
        except OSError as error:
            raise CommandError(f"{options['output']} cannot be written: {error.strerror}.") from error
