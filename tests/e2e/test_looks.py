"""What looks at pages sees what is wrong with one."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.e2e.looks import look

pytestmark = pytest.mark.browser
DIM = "p { color: #444; background: #333 }"
STYLE = "<style>p {{ transition: all 9s }} {style}</style>"
PAGE = f"<html lang=en><title>A page</title>{STYLE}<main><h1>A page</h1>{{body}}</main>"


@pytest.mark.parametrize(
    ("width", "style", "body", "found"),
    [
        (1440, "", "<p>Fine.</p>", []),
        (1440, DIM, "<p>Dim.</p>", ["color-contrast", "dark color-contrast"]),
        (390, f"@media (prefers-color-scheme: dark) {{ {DIM} }}", "<p>Dim at night.</p>", ["dark color-contrast"]),
        (390, f"@media (prefers-color-scheme: light) {{ {DIM} }}", "<p>Dim by day.</p>", ["color-contrast"]),
        (320, "", "<input>", ["label"]),
        (320, "", "<div style='width: 400px'>Wide.</div>", ["scrolls sideways"]),
    ],
)
def test_what_is_wrong_is_seen(
    browse: Callable[..., Page], width: int, style: str, body: str, found: list[str]
) -> None:
    page = browse(None, "about:blank", width)
    page.set_content(PAGE.format(style=style, body=body))
    wrong: dict[str, list[str]] = {}

    look(page, "it", wrong)

    assert [what.split(":")[0] for what in wrong.get(f"it at {width}", [])] == found
