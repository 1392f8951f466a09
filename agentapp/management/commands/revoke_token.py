from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import auth
from agentapp.models import ApiToken
from approvals import ledger


class Command(BaseCommand):
    help = "End an API token at once. Name it by the start of its secret, as the admin lists it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("prefix", help="The first characters of the secret, for example cs_8T3IX4i. At least 6.")

    def handle(self, *args: Any, **options: Any) -> None:
        prefix: str = options["prefix"].strip().removesuffix("…")
        if len(prefix) < 6:
            raise CommandError("Give at least 6 characters, so that it names no other token.")
        # A whole secret names its token too.
        found = list(ApiToken.objects.select_related("user").filter(prefix__startswith=prefix[:10]))
        if not found:
            raise CommandError(f"There is no token that starts with {prefix[:10]}.")
        if len(found) > 1:
            names = ", ".join(sorted(str(token) for token in found))
            raise CommandError(f"{len(found)} tokens start with {prefix[:10]}: {names}. Give more characters.")
        [token] = found
        if not auth.revoke_token(token, ledger.SYSTEM):
            raise CommandError(f"{token} has already been revoked.")
        self.stdout.write(f"Revoked {token} of {token.user.get_username()}.")
