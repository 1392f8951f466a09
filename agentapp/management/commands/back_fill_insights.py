"""Compute the figures of Insights again."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentapp import insights


class Command(BaseCommand):
    help = "Compute the figures of Insights again from the rows, hour by hour."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since", help="The day to start with, in UTC, for example 2026-11-01. Default: the first day."
        )

    def handle(self, *args: Any, since: str | None = None, **options: Any) -> None:
        try:
            begin = datetime.fromisoformat(since).replace(tzinfo=UTC) if since else None
        except ValueError as error:
            raise CommandError(f"{since!r} is not a day such as 2026-11-01.") from error
        state = insights.back_fill(begin)
        self.stdout.write(f"Figures until {state.until:%Y-%m-%d %H:%M} UTC.")
