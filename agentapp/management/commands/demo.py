"""The demo: a shop, its agent, people, runs that wait for them, and everything that serves them."""

import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from agentapp import embedded
from agentapp.demo import check, opening
from agentapp.demo.accounts import ACCOUNTS, PASSWORD
from agentapp.demo.client import CheckFailed
from agentapp.drivers import DRIVERS
from agentapp.evals import suites
from agentapp.management.commands.serve import refuse_exposure
from agentapp.models import Run


class Command(BaseCommand):
    help = "Open the demo shop: make what it needs, start runs, print accounts, serve. Refused when DEBUG is off."
    # Tables may not exist yet, and a demo does on purpose what would be unsafe in production.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on. Default: 127.0.0.1.")
        parser.add_argument("--port", type=int, default=8000, help="Port; 0 takes a free one. Default: 8000.")
        parser.add_argument("--model", default="", help="The model for runs without a script, as provider:model.")
        parser.add_argument("--driver", default="", choices=["", *DRIVERS], help="How the agent decides its steps.")
        parser.add_argument("--no-serve", action="store_true", help="Open the shop and exit; other processes serve it.")
        parser.add_argument("--reset", action="store_true", help="Empty every table first, including the ledger's.")
        parser.add_argument(
            "--check",
            action="store_true",
            help="Play one scenario on throw-away data through worker and API, say how it went, and exit. With "
            "--model, that model is asked.",
        )

    def handle(self, **options: Any) -> None:
        if "agentapp.demo" not in settings.INSTALLED_APPS:
            raise CommandError("The demo's tools are not installed: add agentapp.demo.tools to TOOL_MODULES.")
        if not settings.DEBUG:
            raise CommandError("The demo prints passwords, so it runs only where DEBUG is on: set DEBUG=true.")
        if options["check"]:
            self._check(options["model"], options["driver"])
            return
        if options["no_serve"]:
            self._open(settings.BASE_URL, **options)
            return
        refuse_exposure(options["host"], told=False)
        try:
            listener = embedded.listen(options["host"], options["port"])
        except embedded.CannotListen as error:
            raise CommandError(f"{error} Choose another with --port.") from error
        embedded.lead_to(listener)
        self._open(embedded.address(listener), **options)
        connection.close()  # the server's threads have connections of their own
        code = embedded.run(listener, embedded.Worker() if settings.EMBEDDED else None)
        self.stdout.write("Stopped. The next start goes on with this data; --reset starts over.")
        if code:
            sys.exit(code)

    def _open(self, url: str, *, reset: bool, model: str, driver: str, no_serve: bool, **_: Any) -> None:
        """Make what the demo needs, start its runs, and print the accounts."""
        if reset:
            opening.empty_everything()
        people = opening.open_shop(model, driver)
        suites.load(opening.EVALS)
        started = opening.start_opening_runs(people["sam"])
        chat = opening.start_opening_chats(people["sam"]) if started else ""
        self._welcome(url, started, chat, served=not no_serve)

    def _check(self, model: str, driver: str) -> None:
        logging.getLogger().setLevel(logging.ERROR)
        try:
            self.stdout.write(check.play(model, driver))
        except CheckFailed as error:
            raise CommandError(f"FAILED: {error}") from error

    def _welcome(self, url: str, started: list[Run], chat: str, *, served: bool) -> None:
        bold = self.style.MIGRATE_HEADING
        lines = ["", bold(f"  Countersign is at {url}"), ""]
        lines += [f"  {account.username:<7}{account.role:<10}{account.purpose}" for account in ACCOUNTS]
        lines += ["", f"  Everybody's password: {PASSWORD}   (this machine only)", ""]
        if started:
            lines.append(f"  {len(started)} runs were started; two minutes as dana show what the product does.")
            lines += ["  As a customer, whom an agent asks before it acts (no account, good for a day):"]
            lines += [f"    {url}{chat}"]
        else:
            lines.append("  Going on with the data from last time.")
        lines.append(f"  Runs you start yourself ask {opening.agent_model()}, which needs its key in the environment.")
        if served:
            lines.append("  In another terminal, make tour plays how people govern what agents do, part by part.")
        if served and settings.EMBEDDED:
            lines.append("  Ctrl-C stops everything.")
        elif served:
            lines.append("  REDIS_URL is set, so start worker and beat in two more terminals:")
            lines += ["    celery -A agentapp worker -P threads -c 16", "    celery -A agentapp beat"]
        self.stdout.write("\n".join([*lines, ""]))
        self.stdout.flush()
