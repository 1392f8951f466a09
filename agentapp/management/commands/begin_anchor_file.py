from typing import Any

from django.core.management.base import BaseCommand, CommandError

from approvals.proof import anchors


class Command(BaseCommand):
    help = (
        "Put the file of checkpoints aside and write all of them to a new one. For when the file is lost for good or "
        "the database was restored. Find out why first: the old file is the proof. Doing this is recorded."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            aside = anchors.begin_anew()
        except OSError as error:
            raise CommandError(f"A new file cannot be begun: {error}") from error
        self.stdout.write(f"The old file is {aside}." if aside else "There was no file.")
