"""Makes the link through which somebody becomes the first administrator of an empty installation."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentapp import first_admin


class Command(BaseCommand):
    help = "Print a link that makes the first administrator, once. Refused if somebody already has an account."

    def handle(self, **options: Any) -> None:
        if not first_admin.is_needed():
            raise CommandError("Somebody already has an account; administrators make the others.")
        self.stdout.write(link(settings.BASE_URL))


def link(address: str) -> str:
    """A new link; earlier ones stop working."""
    return f"{address}/setup/?token={first_admin.issue_token()}"
