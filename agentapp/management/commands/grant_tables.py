from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction

from approvals import database_role
from approvals.referenced import secret


class Command(BaseCommand):
    help = (
        "Let a role of PostgreSQL run the product without owning it: it may change every table but those of the "
        "ledger, to which it can only add. Run it as the owner of the tables, after each migration."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="The role that web processes, workers and beat connect as.")
        parser.add_argument(
            "--password-from", metavar="VARIABLE",
            help="Make the role if there is none, and give it the password in this variable, or in the file that "
            "VARIABLE_FILE names. Only a superuser can, or a role that makes roles and may grant pg_read_all_stats.",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        role, variable = options["role"], options["password_from"]
        password = variable and secret(variable)
        if variable and not password:
            raise CommandError(f"{variable} is not set, so {role} would have no password.")
        try:
            with transaction.atomic():
                if password:
                    database_role.make(connection, role, password)
                database_role.grant(connection, role)
        except database_role.Unsuitable as unsuitable:
            raise CommandError(str(unsuitable)) from unsuitable
        self.stdout.write(f"{role} can run the product. It can add to the ledger, and change nothing in it.")
