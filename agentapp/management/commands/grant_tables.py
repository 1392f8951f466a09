from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction

from approvals import database_role


class Command(BaseCommand):
    help = (
        "Let a role of PostgreSQL run the product without owning it: it may change every table but those of the "
        "ledger, to which it can only add. Run it as the owner of the tables, after each migration."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="The role that web processes, workers and beat connect as.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with transaction.atomic():
                database_role.grant(connection, options["role"])
        except database_role.Unsuitable as unsuitable:
            raise CommandError(str(unsuitable)) from unsuitable
        self.stdout.write(f"{options['role']} can run the product. It can add to the ledger, and change nothing in it.")
