"""Seventy values that nobody without the right may see, and how they are found in a text."""

import html
import urllib.parse

from tests.privacy import planted_tools


def card(number: int) -> str:
    """A payment card number that passes the check."""
    body = f"4{number:04d}0000000000"
    doubled = sum(sum(divmod(2 * int(each), 10)) for each in body[::-2]) + sum(int(each) for each in body[-2::-2])
    return body + str(-doubled % 10)


def iban(number: int) -> str:
    body = f"37040044{number:010d}"
    return f"DE{98 - int(body + '131400') % 97:02d}{body}"


def detectable(start: int) -> list[str]:
    """Ten values that are recognised by their shape, none of them planted elsewhere."""
    return [
        f"zq{start}.planted@mail.example",
        f"zq-{start}+b@post.example",
        f"+49 30 {start}44556",
        f"+1 (212) 555-{start:04d}",
        card(start),
        iban(start),
        f"sk-proj-Planted{start}abcdefghij0123456789",
        f"ghp_Planted{start}abcdefghijABCDEFGHIJ0123456789",
        f"AKIA{start:04d}PLANTED12345"[:20].ljust(20, "Z"),
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIw{start}ifQ.Planted{start}signature",
    ]


ARGUMENTS = {name: f"Zq{name.title()} Argument" for name in planted_tools.MARKED}
SECRETS = {"pin": "ZqPin-90817", "passphrase": "ZqPass correct horse"}
RESULTS = {name: f"Zq{name.title()} Result" for name in planted_tools.MARKED}
SEEN = {name: f"Zq{name.title()} Seen" for name in planted_tools.MARKED}
IN_PROMPT, IN_RESULT, IN_ERROR, IN_MEMO = detectable(1101), detectable(2202), detectable(3303), detectable(4404)[:8]
PLANTED = [
    *ARGUMENTS.values(), *SECRETS.values(), *RESULTS.values(), *SEEN.values(), *IN_PROMPT, *IN_RESULT, *IN_ERROR,
    *IN_MEMO,
]  # fmt: skip


def beginning(value: str) -> str:
    """What to search for: a value that was cut has lost its recognisable shape, and still tells of somebody.

    Six characters; twelve if others of its kind begin alike, or if it is digits, as ids have.
    """
    return value[: 6 if value.lower().startswith("zq") else 12]


def found_in(text: str) -> list[str]:
    """The planted values found in a text, whole or cut, in whichever encoding."""
    forms = {text, html.unescape(text), urllib.parse.unquote(text), text.replace("\\u0020", " ")}
    return [each for each in PLANTED if any(beginning(each) in form for form in forms)]
