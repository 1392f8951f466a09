from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from agentapp import retention


class Command(BaseCommand):
    help = "Take away what is older than RETENTION_CONTENT_DAYS and similar settings allow. The beat does the same."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only say what would go.")

    def handle(self, *args: Any, **options: Any) -> None:
        due = retention.preview()
        if not due:
            self.stdout.write("Everything is kept: no retention is set.")
            return
        for each in due:
            what = ", ".join(f"{number} {name}" for name, number in each.counts.items())
            self.stdout.write(f"{each.kind}, older than {each.days} days ({each.before:%Y-%m-%d %H:%M} UTC): {what}")
        if options["dry_run"]:
            self.stdout.write("Nothing was taken away.")
            return
        gone = retention.apply()
        self.stdout.write("Taken away: " + (", ".join(f"{n} {name}" for name, n in gone.items()) or "nothing") + ".")
