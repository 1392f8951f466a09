"""Slack on loopback, with its token."""

from collections.abc import Iterator

import pytest

from tests import slack_api


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[slack_api.Slack]:
    with slack_api.serving(monkeypatch) as there:
        yield there
