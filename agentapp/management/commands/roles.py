from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import roles
from approvals import ledger


class Command(BaseCommand):
    help = (
        "Say which permissions of a new installation the groups of the roles lack; with --update, give them. "
        "Nothing is ever taken away, and your own groups are left alone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        doing = parser.add_mutually_exclusive_group()
        doing.add_argument("--check", action="store_true", help="Exit with status 1 if anything is lacking.")
        doing.add_argument(
            "--update", nargs="*", metavar="ROLE", help="Give them to the groups of these roles, or of all roles."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["update"] is None:
            self._say(roles.lacking(), "lacks", "The groups of the roles lack nothing.")
            if options["check"] and roles.lacking():
                raise CommandError("Groups lack permissions that were added after the groups were made.")
            return
        wanted = options["update"] or [*roles.ROLES]
        if unknown := sorted({*wanted} - {*roles.ROLES}):
            raise CommandError(f"No role is named {', '.join(unknown)}. The roles are {', '.join(roles.ROLES)}.")
        self._say(roles.complete(wanted, ledger.SYSTEM), "was given", "They lacked nothing.")

    def _say(self, found: dict[str, list[str]], done: str, nothing: str) -> None:
        for name, permissions in found.items():
            self.stdout.write(f"{name} {done}: {', '.join(permissions)}")
        if not found:
            self.stdout.write(nothing)
