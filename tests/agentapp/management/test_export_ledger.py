"""The whole ledger in a file."""

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.rows import a_request

pytestmark = pytest.mark.django_db


def test_it_takes_the_place_of_the_one_before_and_is_for_its_owner(tmp_path: Path) -> None:
    a_request()
    path = tmp_path / "ledger.jsonl"
    path.write_text("an earlier one")

    call_command("export_ledger", output=str(path))

    kinds = [json.loads(line).get("kind") for line in path.read_text().splitlines()]
    assert (kinds[0], kinds[-1]) == ("ledger", "manifest")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_one_that_fails_leaves_the_one_before(tmp_path: Path, settings: Any) -> None:
    settings.LEDGER = replace(settings.LEDGER, signing_key="", makes_key=False, signing_key_file=tmp_path / "no.key")
    path = tmp_path / "ledger.jsonl"
    path.write_text("an earlier one")

    with pytest.raises(CommandError, match="cannot be signed"):
        call_command("export_ledger", output=str(path))

    assert path.read_text() == "an earlier one"
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written_is_said(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing" / "ledger.jsonl"):
        with pytest.raises(CommandError, match="cannot be written"):
            call_command("export_ledger", output=str(place))
