"""Read the tools of TOOL_MODULES into rows, for admins to control."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import tool_sync
from agentapp.management.differences import print_changes
from approvals import ledger


class Command(BaseCommand):
    help = "Write the contracts of the tools in TOOL_MODULES to the database. What an admin set is never touched."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Say what would change, and change nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        dry_run = options["dry_run"]
        try:
            synced = tool_sync.sync(ledger.actor_of(None, "sync_tools"), dry_run)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        print_changes(synced.changes, self.stdout)
        for warning in synced.warnings:
            self.stderr.write(self.style.WARNING(warning))
        done = "would change" if dry_run else "changed"
        aside = "would be set aside" if dry_run else "set aside"
        self.stdout.write(f"{len(synced.changes)} rows {done}, {synced.voided} open requests {aside}.")
