"""Shows the operations of an OpenAPI document from which tools could be made. Nothing is stored."""

import ipaddress
import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentapp.tools import openapi, outbound


class Command(BaseCommand):
    help = "Read an OpenAPI document (3.0 or 3.1) and list its operations: name, effect as guessed, arguments."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("location", help="A file, or an https address.")
        parser.add_argument("--prefix", default="", help="What the name of each operation begins with.")
        parser.add_argument("--schema", default="", metavar="NAME", help="Show the arguments of one operation instead.")
        parser.add_argument(
            "--network",
            action="append",
            default=[],
            metavar="CIDR",
            help="An internal network that may be asked, in addition to OUTBOUND_NETWORKS.",
        )

    def handle(self, **options: Any) -> None:
        try:
            document = openapi.read(_text_of(options["location"], options["network"]), options["prefix"])
        except (openapi.DocumentRefused, outbound.OutboundRefused, OSError) as error:
            raise CommandError(str(error)) from error
        if options["schema"]:
            self._show(document, options["schema"])
            return
        self.stdout.write(f"{document.title} {document.version}: {len(document.operations)} operations")
        wide = max((len(operation.name) for operation in document.operations), default=0)
        for one in document.operations:
            needed = one.input_schema["required"]
            arguments = ", ".join(name if name in needed else f"{name}?" for name in one.places)
            self.stdout.write(f"  {one.name:<{wide}}  {one.effect_class:<12}  {one.method.upper():<6} {one.path}")
            self.stdout.write(f"  {'':<{wide}}  {arguments or 'no arguments'}")
        for place, why in document.left_out.items():
            self.stderr.write(f"  Left out: {place}. {why}")

    def _show(self, document: openapi.Document, name: str) -> None:
        found = next((one for one in document.operations if one.name == name), None)
        if found is None:
            raise CommandError(f"The document has no operation {name!r}.")
        self.stdout.write(json.dumps(found.input_schema, indent=2, ensure_ascii=False))


def _text_of(location: str, networks: list[str]) -> bytes:
    if "://" not in location:
        return Path(location).read_bytes()
    try:
        allowed = tuple(ipaddress.ip_network(network) for network in networks)
    except ValueError as error:
        raise CommandError(f"--network takes a range of addresses, for example 10.2.0.0/16: {error}") from error
    allowed += tuple(settings.OUTBOUND_NETWORKS)
    return outbound.fetch(location, outbound.Outside(networks=allowed), openapi.MAX_BYTES)
