from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentapp import erasing
from agentapp.models import Erasure
from agentapp.refused import Refused


class Command(BaseCommand):
    help = "Erase what is kept about a run, a conversation or a customer. Without --yes, only say what would go."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("scope", choices=Erasure.Scope.values)
        parser.add_argument("subject", help="The id of the run or conversation, or the customer as runs name them.")
        parser.add_argument("--reason", default="", help="Why. It stays on record, so name nobody in it.")
        parser.add_argument("--yes", action="store_true", help="Erase it.")

    def handle(self, *args: Any, **options: Any) -> None:
        scope, subject = options["scope"], options["subject"]
        try:
            seen = erasing.preview(scope, subject.strip())
            for name, number in seen.counts.items():
                self.stdout.write(f"{number:>8}  {name}")
            for line in seen.stays:
                self.stdout.write(f"   stays  {line}")
            if seen.mentions:
                named = ", ".join(run.reference for run in seen.mentioning)
                runs, mention = _counted(seen.mentions, "runs"), "mentions" if seen.mentions == 1 else "mention"
                self.stdout.write(f"   stays  the text of {runs} that {mention} this customer: {named}")
            if not options["yes"]:
                self.stdout.write("Nothing was erased. Add --yes and --reason to erase it; this cannot be undone.")
                return
            done = erasing.erase(scope, subject, options["reason"], None, "system (erase)")
        except Refused as refused:
            raise CommandError(refused.message) from refused
        self.stdout.write(f"Erased: {', '.join(_counted(number, name) for name, number in done.counts.items())}.")


def _counted(number: int, kind: str) -> str:
    """How many of a kind: "1 run", "2 runs"."""
    return f"{number} {kind.removesuffix('s') if number == 1 else kind}"
