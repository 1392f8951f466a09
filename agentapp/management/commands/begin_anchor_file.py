from typing import Any

from django.core.management.base import BaseCommand, CommandError

from approvals.proof import anchors


class Command(BaseCommand):
    help = (
        "Put the file of checkpoints aside and note all of them in a new one, where the file is lost for good or the "
        "database was restored. Only once you have understood why: what was noted is the proof. It is on record."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            aside = anchors.begin_anew()
        except OSError as error:
            raise CommandError(f"The file cannot be begun anew: {error}") from error
        self.stdout.write(f"The old file is {aside}." if aside else "There was no file.")
