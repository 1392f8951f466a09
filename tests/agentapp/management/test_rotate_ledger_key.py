"""A new key for the ledger, and what remains to be done before it is used."""

import base64
import os
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from approvals.models import LedgerKey
from approvals.proof import signing_key

pytestmark = pytest.mark.django_db


def a_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def rotated(file: Path) -> str:
    said = StringIO()
    call_command("rotate_ledger_key", str(file), stdout=said)
    return said.getvalue()


@pytest.fixture
def in_the_environment(settings: Any) -> None:
    settings.LEDGER = replace(settings.LEDGER, signing_key=a_key())


@pytest.mark.usefixtures("in_the_environment")
def test_it_says_that_the_variable_goes_where_the_key_was_in_one(tmp_path: Path) -> None:
    old = signing_key.public_key()
    said = rotated(tmp_path / "next.key")
    assert f"Set LEDGER_SIGNING_KEY_FILE={tmp_path}/next.key, remove LEDGER_SIGNING_KEY, and" in said
    assert said.rstrip().endswith(f"LEDGER_TRUSTED_KEYS: {old.key_id}")


def test_it_says_nothing_of_a_variable_where_the_key_was_in_a_file(tmp_path: Path, settings: Any) -> None:
    (tmp_path / "ledger.key").write_text(a_key())
    settings.LEDGER = replace(settings.LEDGER, signing_key="", signing_key_file=tmp_path / "ledger.key")
    assert "remove LEDGER_SIGNING_KEY" not in rotated(tmp_path / "next.key")


@pytest.mark.usefixtures("in_the_environment")
def test_the_key_that_follows_may_have_been_brought(tmp_path: Path) -> None:
    (tmp_path / "next.key").write_text(a_key())
    rotated(tmp_path / "next.key")
    assert LedgerKey.objects.filter(pk=signing_key.generate(tmp_path / "next.key").key_id).exists()
    assert [file.name for file in tmp_path.iterdir()] == ["next.key"]


@pytest.mark.usefixtures("in_the_environment")
def test_what_is_no_key_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "next.key").write_text("hunter2")
    with pytest.raises(CommandError, match="neither an Ed25519 key"):
        rotated(tmp_path / "next.key")
    with pytest.raises(CommandError, match="cannot be changed"):
        rotated(tmp_path / "nowhere" / "next.key")
