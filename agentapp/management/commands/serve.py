"""Serve the console and the API; with the embedded broker, also work."""

import ipaddress
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from agentapp import embedded, first_admin
from agentapp.management.commands.setup_link import link


class Command(BaseCommand):
    help = (
        "Serve the console and the API. Without REDIS_URL a Celery worker and beat run in the same process; "
        "with it, start them separately."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on. Default: 127.0.0.1.")
        parser.add_argument("--port", type=int, default=8000, help="Port; 0 takes a free one. Default: 8000.")
        parser.add_argument(
            "--expose",
            action="store_true",
            help="Listen on an address others can reach even with DEBUG on or the embedded broker.",
        )

    def handle(self, **options: Any) -> None:
        host, port = options["host"], options["port"]
        refuse_exposure(host, told=options["expose"])
        refuse_old_tables()
        try:
            listener = embedded.listen(host, port)
        except embedded.CannotListen as error:
            raise CommandError(f"{error} Choose another with --port.") from error
        embedded.lead_to(listener)
        address = embedded.address(listener)
        self.stdout.write(f"Countersign is at {address}")
        if first_admin.is_needed():
            self.stdout.write(f"Nobody can sign in yet. Make the first administrator at {link(address)}")
        connection.close()  # the server's threads have connections of their own
        if settings.EMBEDDED:
            self.stdout.write("Worker and beat run in this process. Ctrl-C stops everything.")
        else:
            self.stdout.write("This process serves the web only. In two more terminals:")
            self.stdout.write("  celery -A agentapp worker -P threads -c 16")
            self.stdout.write("  celery -A agentapp beat")
        self.stdout.flush()
        code = embedded.run(listener, embedded.Worker() if settings.EMBEDDED else None)
        if code:
            sys.exit(code)


def refuse_exposure(host: str, told: bool) -> None:
    """Raises CommandError for an address that others can reach if that would be unsafe, unless told to expose it."""
    why = "DEBUG is on" if settings.DEBUG else "the broker is embedded" if settings.EMBEDDED else ""
    if why and not told and not is_loopback(host):
        raise CommandError(
            f"{host} can be reached from other machines and {why}. Use 127.0.0.1, or --expose if you mean it."
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_old_tables() -> None:
    """Raises CommandError when migrations have not been applied."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        raise CommandError(f"The database lacks {len(plan)} migration(s): run `manage.py migrate` first.")
