from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import auth
from approvals import clock, ledger

MAX_DAYS = 3650


class Command(BaseCommand):
    help = "Make an API token that acts as one person. Its secret is printed once and stored nowhere."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username", help="The person the token acts as.")
        parser.add_argument("--name", required=True, help="What uses it, for example 'ticket system'.")
        parser.add_argument(
            "--scope", action="append", required=True, choices=sorted(auth.SCOPES), help="May be given several times."
        )
        parser.add_argument("--expires-days", type=int, help="Days until it ends. Without this option it never ends.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"There is no person named {options['username']!r}.")
        if not user.is_active:
            raise CommandError(f"{user.get_username()} is not active, so their token would not work.")
        name = options["name"].strip()
        if not 0 < len(name) <= 80:
            raise CommandError("The name must have 1 to 80 characters.")
        days = options["expires_days"]
        if days is not None and not 0 < days <= MAX_DAYS:
            raise CommandError(f"--expires-days must be between 1 and {MAX_DAYS}.")
        expires_at = clock.asked() + timedelta(days=days) if days else None
        try:
            token, secret = auth.issue_token(user, name, options["scope"], ledger.SYSTEM, expires_at)
        except auth.TokenRefused as error:
            raise CommandError(error.message) from error
        self.stderr.write(
            f"Made {token} for {user.get_username()}: {', '.join(token.scopes)}; "
            f"{f'ends {expires_at:%Y-%m-%d}' if expires_at else 'never expires'}. "
            "This is the only time its secret is shown:"
        )
        self.stdout.write(secret)
