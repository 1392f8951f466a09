"""Make tools from the operations of an OpenAPI document, as the admin's page does."""

import fnmatch
from argparse import ArgumentParser, BooleanOptionalAction
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agentapp.importing import planning, writing
from agentapp.importing.planning import Choice, Given, Plan
from agentapp.management.differences import print_changes
from agentapp.refused import Refused
from approvals import ledger


class Command(BaseCommand):
    help = (
        "Make tools from an OpenAPI document (3.0 or 3.1). An existing source is read again: its tools are brought up "
        "to date, and those no longer in the document are marked as gone."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("document", help="A file, or an https address.")
        parser.add_argument("--name", default="", help="Name of the source. Default: made from the document's title.")
        parser.add_argument(
            "--location", default="", help="The service's address, if the one in the document is wrong."
        )
        parser.add_argument("--prefix", default="", help="What the name of each tool begins with.")
        parser.add_argument(
            "--check-answers", action=BooleanOptionalAction, default=None,
            help="An answer that differs from the document is a failure. Default: as before, and at first it is not.",
        )  # fmt: skip
        parser.add_argument("--all", action="store_true", help="Take every operation.")
        parser.add_argument("--tag", action="append", default=[], help="Take the operations with this tag.")
        parser.add_argument(
            "--operation", action="append", default=[], metavar="PATTERN",
            help="Take the operations with this name or pattern, for example 'orders_*'.",
        )  # fmt: skip
        parser.add_argument(
            "--credential", action="append", default=[], metavar="SCHEME=NAME",
            help="The credential, held by CREDENTIAL_NAME, for one of the document's security schemes.",
        )  # fmt: skip
        parser.add_argument("--dry-run", action="store_true", help="Say what would change, and change nothing.")

    def handle(self, **options: Any) -> None:
        try:
            planned = planning.plan(_given(options))
            chosen = _chosen(planned, options)
            done = writing.write(
                planned,
                chosen,
                ledger.actor_of(None, "import_openapi"),
                _named(options["credential"]) or None,
                options["dry_run"],
            )
        except (Refused, OSError) as error:
            raise CommandError(str(error)) from error
        print_changes(done.changes, self.stdout)
        for place, why in planned.document.left_out.items():
            self.stderr.write(f"Left out: {place}. {why}")
        done_words = ("would change", "would be") if options["dry_run"] else ("changed", "were")
        self.stdout.write(
            f"{len(chosen)} of {len(planned.proposed)} operations are tools of {done.source.name}. {len(done.changes)} "
            f"rows {done_words[0]}, {done.voided} open requests {done_words[1]} set aside."
        )


def _given(options: dict[str, Any]) -> Given:
    where = options["document"]
    is_url = "://" in where
    return Given(
        text=planning.fetch(where) if is_url else Path(where).read_bytes(),
        name=options["name"],
        location=options["location"],
        origin=where if is_url else "",
        prefix=options["prefix"],
        checks_answers=options["check_answers"],
    )


def _chosen(planned: Plan, options: dict[str, Any]) -> dict[str, Choice]:
    tags, patterns = set(options["tag"]), options["operation"]
    known = {tag for one in planned.proposed for tag in one.operation.tags}
    if unknown := sorted(tags - known):
        there = f"There are: {', '.join(sorted(known))}." if known else "None has any."
        raise CommandError(f"No operation has the tag {unknown[0]!r}. {there}")
    chosen = planning.preset(planned)
    for one in planned.proposed:
        named = any(fnmatch.fnmatchcase(one.operation.name, p) or fnmatch.fnmatchcase(one.key, p) for p in patterns)
        if options["all"] or named or tags & set(one.operation.tags):
            chosen[one.key] = one.choice
    if not chosen:
        raise CommandError("No operation was chosen: give --all, --tag or --operation. read_openapi lists them.")
    return chosen


def _named(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if wrong := [scheme for scheme, equals, _ in pairs if not equals]:
        raise CommandError(f"--credential takes a scheme and a name, for example token=SHOP, not {wrong[0]!r}.")
    return {scheme: name for scheme, _, name in pairs}
