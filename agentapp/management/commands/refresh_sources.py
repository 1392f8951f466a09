"""Ask MCP servers what they offer, and write their tools."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import refreshing
from agentapp.management.differences import print_changes
from approvals import ledger


class Command(BaseCommand):
    help = "Ask every MCP server that is in use for its tools, and write what changed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--source", default="", help="Ask only the source of this name.")

    def handle(self, *args: Any, **options: Any) -> None:
        sources = refreshing.in_use()
        if options["source"]:
            sources = sources.filter(name=options["source"])
            if not sources:
                raise CommandError(f"No MCP server named {options['source']!r} is in use.")
        problems = 0
        for source in sources:
            found = refreshing.refresh(source, ledger.actor_of(None, "refresh_sources"))
            problems += bool(found.problem)
            self.stdout.write(f"{source.name}: {found.problem or f'{len(found.changes)} rows changed.'}")
            print_changes(found.changes, self.stdout)
            for name in found.waiting:
                self.stderr.write(self.style.WARNING(f"{name} has a new contract and is out of use until accepted."))
            for sentence in found.left_out:
                self.stderr.write(self.style.WARNING(f"Left out: {sentence}"))
        if problems:
            raise CommandError(f"{problems} of {len(sources)} could not be asked.")
