"""Load the configuration from a file."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp.configuration_file import ConfigurationRefused, load
from agentapp.management.differences import print_changes
from approvals import ledger


class Command(BaseCommand):
    help = "Set agents, routes, safety settings of tools, rules, channels and groups to what a YAML file says."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--dry-run", action="store_true", help="Say what would change, and change nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        file, dry_run = options["file"], options["dry_run"]
        try:
            changes = load(file.read_text("utf-8"), ledger.actor_of(None, f"load_config {file.name}"), dry_run)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file} cannot be read: {error}") from error
        except ConfigurationRefused as error:
            lines = "\n".join(f"  {problem}" for problem in error.problems)
            raise CommandError(f"{file} was not loaded; nothing has changed.\n{lines}") from error
        print_changes(changes, self.stdout)
        self.stdout.write(f"{len(changes)} rows {'would change' if dry_run else 'changed'}.")
