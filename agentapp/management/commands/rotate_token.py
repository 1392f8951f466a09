from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import auth
from agentapp.models import ApiToken
from approvals import ledger

MAX_HOURS = 24 * 30


class Command(BaseCommand):
    help = "Replace an API token with a new one. The old one works for some more hours. Prints the new secret once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("prefix", help="The first 10 characters of the old secret, as the admin lists it.")
        parser.add_argument(
            "--overlap-hours", type=int, default=24, help="How long the old one still works. 0: it ends now."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        prefix, hours = options["prefix"].strip().removesuffix("…")[:10], options["overlap_hours"]
        if not 0 <= hours <= MAX_HOURS:
            raise CommandError(f"--overlap-hours must be between 0 and {MAX_HOURS}.")
        found = list(ApiToken.objects.filter(prefix=prefix, revoked_at__isnull=True))
        if len(found) != 1:
            raise CommandError(f"{len(found) or 'No'} tokens that have not been revoked start with {prefix}.")
        try:
            new, secret = auth.rotate_token(found[0], ledger.SYSTEM, timedelta(hours=hours))
        except auth.TokenRefused as error:
            raise CommandError(error.message) from error
        self.stderr.write(f"{new} takes the place of {found[0]}, which ends in {hours} h. Its secret, shown only once:")
        self.stdout.write(secret)
