from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals.proof import keys, signing_key
from approvals.proof.signing_key import NoKey


class Command(BaseCommand):
    help = (
        "Have the ledger's signing key say that another one follows it: the one in FILE, made if it is not there. Then "
        "name that file in LEDGER_SIGNING_KEY_FILE, take LEDGER_SIGNING_KEY away, and start everything anew."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="Where the next key is, or will be.")

    def handle(self, *args: Any, **options: Any) -> None:
        file = Path(options["file"]).absolute()
        try:
            old, new = signing_key.public_key(), keys.rotate(file)
        except (NoKey, OSError) as error:
            raise CommandError(f"The key cannot be changed: {error}") from error
        away = ", take LEDGER_SIGNING_KEY away" if settings.LEDGER.signing_key else ""
        self.stdout.write(
            f"The key {new.key_id} follows. Set LEDGER_SIGNING_KEY_FILE={file}{away}, and add the key of before to "
            f"LEDGER_TRUSTED_KEYS: {old.key_id}"
        )
