from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from approvals.proof import signing_key


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(autouse=True)
def key(folder: Path, settings) -> signing_key.PublicKey:
    """A signing key for this test alone, and checkpoints noted in its own folder."""
    settings.LEDGER = replace(
        django_settings.LEDGER,
        signing_key="",
        signing_key_file=folder / "ledger.key",
        makes_key=True,
        anchor_file=folder / "checkpoints.jsonl",
        anchor_url="",
    )
    return signing_key.public_key()
