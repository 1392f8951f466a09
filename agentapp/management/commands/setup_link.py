"""Where somebody becomes the first administrator of an empty installation."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentapp import first_admin


class Command(BaseCommand):
    help = "Print a link that makes the first administrator, once. Refused where somebody has an account."

    def handle(self, **options: Any) -> None:
        if not first_admin.is_needed():
            raise CommandError("Somebody has an account already; administrators make the others.")
        self.stdout.write(link(settings.BASE_URL))


def link(address: str) -> str:
    """A new link; it makes earlier ones worthless."""
    return f"{address}/setup/?token={first_admin.issue_token()}"
