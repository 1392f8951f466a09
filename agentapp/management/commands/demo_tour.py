"""The demo's tour: parts of governance, each played in the open shop up to what is left for the viewer to do."""

import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, ProgrammingError, connection

from agentapp.demo import tour
from agentapp.demo.accounts import ACCOUNTS
from agentapp.refused import Refused
from approvals.models import Rule

LOOK_EVERY_SECONDS = 0.3


class Command(BaseCommand):
    help = "Play parts of the demo's tour while `make demo` runs, and say what to open. Without names, list them."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = [part.name for part in tour.PARTS]
        parser.add_argument("names", nargs="*", metavar="NAME", help=f"Parts to play: {', '.join(names)}; or all.")
        parser.add_argument("--url", default=settings.BASE_URL, help="Where the demo listens. Default: BASE_URL.")

    def handle(self, **options: Any) -> None:
        names = options["names"]
        if not names:
            lines = [f"  {part.name:<17}{part.about}" for part in tour.PARTS]
            self.stdout.write("\n".join(["Name one or more, or all:", *lines]))
            return
        unknown = sorted(set(names) - {part.name for part in tour.PARTS} - {"all"})
        if unknown:
            raise CommandError(f"There is no part {unknown[0]}; run it without a name to list them.")
        if "agentapp.demo" not in settings.INSTALLED_APPS or not settings.DEBUG:
            raise CommandError(
                "The tour acts as the demo's people, so it plays only where DEBUG is on: set DEBUG=true."
            )
        stage = tour.Stage(_people(), lambda: time.sleep(LOOK_EVERY_SECONDS))
        for part in tour.PARTS:
            if part.name in names or "all" in names:
                self._play(part, stage, options["url"].rstrip("/"))

    def _play(self, part: tour.Part, stage: tour.Stage, url: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(f"\n  {part.name}: {part.about}"))
        self.stdout.flush()
        try:
            sights = part.play(stage)
        except (tour.TourStopped, Refused) as error:
            raise CommandError(f"{part.name}: {error}") from error
        for sight in sights:
            self.stdout.write(f"  as {sight.who:<6}{url}{sight.path}\n           {sight.then}")
        self.stdout.flush()


def _people() -> dict[str, User]:
    """The demo's people, from a shop that has what the tour needs."""
    try:
        people = {user.username: user for user in User.objects.filter(username__in=[one.username for one in ACCOUNTS])}
        ready = len(people) == len(ACCOUNTS) and Rule.objects.filter(name="wrong-items-over-300").exists()
    except (OperationalError, ProgrammingError) as error:
        raise CommandError(
            f"There is no demo in this {connection.vendor} database: start it with make demo."
        ) from error
    if not ready:
        raise CommandError("The tour needs the current demo: make demo ARGS=--reset.")
    return people
