"""Print the configuration as a file."""

from typing import Any

from django.core.management.base import BaseCommand

from agentapp.configuration_file import dump


class Command(BaseCommand):
    help = "Print agents, routes, safety settings of tools, rules, channels and groups as YAML for load_config."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(dump(), ending="")
