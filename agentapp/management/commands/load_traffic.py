"""Fill a throw-away database with a made-up past, for benchmarks and for pages with years of data."""

import time
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, models, transaction

from agentapp.demo import traffic
from agentapp.models import Run, Step, ToolExecution
from approvals import append_only
from approvals.models import Approval, ChainHead, Decision, Event

# In the order in which rows refer to each other.
MODELS: dict[str, type[models.Model]] = {
    "runs": Run,
    "steps": Step,
    "approvals": Approval,
    "executions": ToolExecution,
    "decisions": Decision,
    "events": Event,
    "heads": ChainHead,
}


class Command(BaseCommand):
    help = (
        f"Writes runs of a made-up past, {traffic.EVENTS_PER_RUN} events each, into a database that has no runs. "
        "Nothing of it ever happened: never use it where the ledger matters."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--runs", type=int, default=1000, help="How many runs (200,000 make 5 million events).")
        parser.add_argument("--days", type=int, default=30, help="Over how many days, up to yesterday.")
        parser.add_argument("--seed", type=int, default=7, help="The same seed makes the same past.")

    def handle(self, *args: Any, **options: Any) -> None:
        if Run.objects.exists() or Event.objects.filter(run_id__isnull=False).exists():
            raise CommandError("This database has runs. A made-up past is only for a database without any.")
        try:
            cast = traffic.Cast.read()
        except LookupError as error:
            raise CommandError(str(error)) from error
        begun, done = time.monotonic(), 0
        append_only.remove(connection)  # otherwise each event would be announced to waiting pages
        try:
            for past in traffic.make(cast, options["runs"], datetime.now(UTC), options["days"], options["seed"]):
                store(past)
                done += len(past.runs)
                if options["verbosity"] > 1:
                    self.stdout.write(f"{done} runs")
        finally:
            append_only.install(connection)
        self.stdout.write(f"{done} runs in {time.monotonic() - begun:.0f} s.")


def store(past: traffic.Past) -> None:
    """Write the rows of some runs at once."""
    with transaction.atomic():
        for name, model in MODELS.items():
            rows: Sequence[models.Model] = getattr(past, name)
            if connection.vendor == "postgresql":
                _copy(model, rows)
            else:
                model._default_manager.bulk_create(rows)


def _copy(model: type[models.Model], rows: Iterable[models.Model]) -> None:
    """Write rows with PostgreSQL's COPY."""
    fields = model._meta.concrete_fields
    quoted = connection.ops.quote_name
    into = f"{quoted(model._meta.db_table)} ({', '.join(quoted(field.column or field.name) for field in fields)})"
    with connection.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN") as copy:
        for row in rows:
            copy.write_row([field.get_db_prep_save(getattr(row, field.attname), connection) for field in fields])
