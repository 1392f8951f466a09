import logging

import pytest

from agentapp.logs import WithoutLinks


@pytest.mark.parametrize(
    ("message", "args", "kept"),
    [
        ("%s: %s", ("Forbidden", "/login/reset/1-d3x-0123abc/"), "Forbidden: /login/reset/…/"),
        ("E-1: POST /login/reset/1z-d3x-0123abc/ failed", (), "E-1: POST /login/reset/…/ failed"),
        ("Not Found: /login/reset/asked/", (), "Not Found: /login/reset/asked/"),
        ("%d%%", (5,), "5%"),
    ],
)
def test_a_link_that_opens_a_choice_of_password_is_blotted_out(
    message: str, args: tuple[object, ...], kept: str
) -> None:
    record = logging.LogRecord("django.request", logging.WARNING, "", 1, message, args, None)

    assert WithoutLinks().filter(record)
    assert record.getMessage() == kept
