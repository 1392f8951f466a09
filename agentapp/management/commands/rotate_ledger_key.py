from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.proof import keys, signing_key
from approvals.proof.signing_key import NoKey


class Command(BaseCommand):
    help = (
        "Sign a statement, with the ledger's key, that the key in FILE follows it; FILE is made if it does not exist. "
        "Then name that file in LEDGER_SIGNING_KEY_FILE, remove LEDGER_SIGNING_KEY, and restart everything."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="Where the next key is, or will be.")

    def handle(self, *args: Any, **options: Any) -> None:
        file = Path(options["file"]).absolute()
        try:
            old, new = signing_key.public_key(), keys.rotate(file)
        except (NoKey, OSError) as error:
            raise CommandError(f"The key cannot be changed: {error}") from error
        away = ", remove LEDGER_SIGNING_KEY" if settings.LEDGER.signing_key else ""
        self.stdout.write(
            f"The key {new.key_id} follows. Set LEDGER_SIGNING_KEY_FILE={file}{away}, and add the previous key to "
            f"LEDGER_TRUSTED_KEYS: {old.key_id}"
        )
