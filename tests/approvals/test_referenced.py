"""Secrets in files named by the environment."""

from pathlib import Path

import pytest

from agentapp.llm import providers
from agentapp.tools import credentials
from agentapp.tools.results import ToolError
from approvals import referenced
from approvals.channels import credentials as of_channels


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREDENTIAL_SHOP_FILE", str(tmp_path / "shop"))
    (tmp_path / "shop").write_text("k3y-of-the-shop\n")
    return tmp_path / "shop"


def test_tools_and_channels_read_what_stands_in_the_file(file: Path) -> None:
    assert credentials.named("SHOP") == of_channels.read("SHOP") == "k3y-of-the-shop"


def test_what_is_changed_in_the_file_counts_at_once(file: Path) -> None:
    file.write_text("another-key")
    assert credentials.named("SHOP") == "another-key"


def test_a_key_in_a_file_is_taken_out_of_what_is_shown(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(file))
    assert "k3y-of-the-shop" in providers.secrets()


def test_two_ways_to_name_a_secret_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", "other")
    with pytest.raises(referenced.Unreadable, match="both set"):
        referenced.secret("CREDENTIAL_SHOP")


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe", b"x" * 70_000])
def test_a_file_that_is_no_secret_is_refused_without_a_word_of_it(file: Path, content: bytes | None) -> None:
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(referenced.Unreadable) as refused:
        referenced.secret("CREDENTIAL_SHOP")
    assert "xxx" not in str(refused.value)
    with pytest.raises(ToolError, match="must check its file"):
        credentials.named("SHOP")
