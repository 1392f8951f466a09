"""Finds unmarked secrets and personal data in text: by shape, and by checksum where there is one.

A small set, chosen to be right when it finds something: what it finds is replaced on pages, in logs and in messages,
and a word that is not a secret must stay. It promises nothing about data without a shape, such as names and postal
addresses: mark the fields that hold those (`Tool.pii_fields`). Each expression is bounded, and none begins twice in the
same word, so the time grows only with the text's length, whoever wrote it.
"""

import re
from collections.abc import Callable, Container
from typing import Any

MASK = "••••••"
# The length of an account number in each country (ISO 13616 registry).
_IBAN_CHARS = {
    "NO": 15, "BE": 16, "DK": 18, "FI": 18, "FK": 18, "FO": 18, "GL": 18, "NL": 18, "SD": 18, "MK": 19, "SI": 19,
    "AT": 20, "BA": 20, "EE": 20, "KZ": 20, "LT": 20, "LU": 20, "MN": 20, "XK": 20, "CH": 21, "HR": 21, "LI": 21,
    "LV": 21, "BG": 22, "BH": 22, "CR": 22, "DE": 22, "GB": 22, "GE": 22, "IE": 22, "ME": 22, "RS": 22, "VA": 22,
    "AE": 23, "GI": 23, "IL": 23, "IQ": 23, "OM": 23, "SO": 23, "TL": 23, "AD": 24, "CZ": 24, "ES": 24, "MD": 24,
    "PK": 24, "RO": 24, "SA": 24, "SE": 24, "SK": 24, "TN": 24, "VG": 24, "LY": 25, "PT": 25, "ST": 25, "IS": 26,
    "TR": 26, "BI": 27, "DJ": 27, "FR": 27, "GR": 27, "IT": 27, "MC": 27, "MR": 27, "SM": 27, "AL": 28, "AZ": 28,
    "BY": 28, "CY": 28, "DO": 28, "GT": 28, "HU": 28, "LB": 28, "NI": 28, "PL": 28, "SV": 28, "BR": 29, "EG": 29,
    "PS": 29, "QA": 29, "UA": 29, "JO": 30, "KW": 30, "MU": 30, "YE": 30, "MT": 31, "SC": 31, "LC": 32, "RU": 33,
}  # fmt: skip
_AS_DIGITS = {ord(letter): str(10 + at) for at, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ")}
_SPACES = " \u00a0\u2009\u202f"
# In all of these, a word may also begin after a line break written as in JSON.

_PEM_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_PEM_BODY = re.compile(r"[\w\s+/=\\:,-]*")
# Every name of a secret contains one of these.
_NAMES = ("passw", "passphrase", "apikey", "-key", "_key", "-secret", "_secret", "-token", "_token")


def _shape(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.VERBOSE | re.DOTALL)


# Each with texts, one of which occurs in everything of that shape, so few shapes are searched for on a page. Named
# secrets come first, because all of one is secret; a key in it is only a part.
_SECRETS = (
    (_NAMES, _shape(r"""
        (?<![A-Za-z])(?i:password|passwd|passphrase|api[-_]?key|(?:secret|private)[-_]key
            | client[-_]secret | (?:access|refresh|auth)[-_]token)
        (?:\\{0,3}["']|&quot;|&\#x27;)?[ ]{0,3}[:=][ ]{0,3}(?:\\{0,3}["']|&quot;|&\#x27;)?
        (?P<secret>(?=[^\s"'<>&,;\\•]{0,200}[\d!$%^*])[^\s"'<>&,;\\•]{4,500})
    """)),
    (("=",), _shape(r"""
        [?&;](?:password|passwd|pwd|secret|api_?key|apikey|access_token|refresh_token|auth_token|client_secret)=
        (?P<secret>[^&\s"'<>\#]{4,500})
    """)),
    (("://",), _shape(r"""://(?<=[A-Za-z0-9+.-]://)[^\s/:@"'<>]{0,100}:(?P<secret>[^\s/@"'<>]{3,200})(?=@)""")),
    (("earer ",), _shape(r"\b[Bb]earer[ ]{1,4}(?P<secret>(?=[\w.~+/-]{0,200}\d)[\w.~+/-]{20,2000}=*)")),
    (("asic ",), _shape(r"""
        \b[Bb]asic[ ]{1,4}(?P<secret>(?=[A-Za-z0-9+/]{0,200}[\d=])[A-Za-z0-9+/]{8,2000}={0,2})(?!\w)
    """)),
    # OpenAI, Anthropic, Stripe. "sk-" is on every page, as in "risk-high", so what precedes it is checked second.
    (("sk-", "sk_"), _shape(r"""
        (?P<secret>sk[-_](?:(?<![\w-]sk[-_])|(?<=\\[nrt]sk[-_]))(?=[\w-]{0,60}\d)[A-Za-z0-9_-]{20,200})(?![\w-])
    """)),
    (
        (
            "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "AKIA",
            "ASIA", "AIza", "GOCSPX-", "xox", "SG.", "hf_", "eyJ",
        ),
        _shape(r"""
            (?:(?<![\w-])|(?<=\\[nrt]))(?P<secret>
                [rp]k_(?:live|test)_[A-Za-z0-9]{16,200}
              | gh[pousr]_[A-Za-z0-9]{30,255} | github_pat_\w{50,255} | glpat-[\w-]{20,64} | npm_[A-Za-z0-9]{36}
              | (?:AKIA|ASIA)[0-9A-Z]{16} | AIza[\w-]{35} | GOCSPX-[\w-]{20,64}
              | xox[abeoprs]-[A-Za-z0-9-]{10,250} | SG\.[\w-]{16,64}\.[\w-]{16,64} | hf_[A-Za-z0-9]{30,64}
              | eyJ[\w-]{8,4000}\.eyJ[\w-]{2,8000}\.[\w-]{8,2000}   # a signed JSON web token
            )(?![\w-])
        """),
    ),
)  # fmt: skip

_AT = re.compile("@|%40")
_BEFORE_AT = re.compile(r"(?:(?<![\w.%+-])|(?<=%[0-9A-Fa-f]{2}))\w(?:[\w.+-]|%2[Bb]){0,63}(?:@|%40)")
_MOST_BEFORE_AT = 1 + 3 * 63
_BEHIND_AT = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,6}[^\W\d_]{2,24}(?![^\W_])")
# What cards of the schemes in use begin with, and how long they are (ISO/IEC 7812). Other digits are no card, though
# every tenth number has the right check digit: of articles (EAN), of orders, a time in one word.
_ISSUED = re.compile(
    r"4\d{15}(?:\d{3})?|5[1-5]\d{14}|5[0678]\d{14,17}|6\d{15,18}|2[2-7]\d{14}|220[0-4]\d{12,15}"
    r"|3[47]\d{13}|35\d{14}|3[0689]\d{12}(?:\d\d)?"
)
_DIGIT = re.compile(r"\d")
_PHONE = re.compile(rf"\+(?<![\w+]\+)[1-9](?:[{_SPACES}./()-]{{0,2}}\d){{7,14}}(?![\w])")
_CARD = re.compile(
    rf"[2-6](?:(?<![\w.+-].)|(?<=\\[nrt].))\d{{3}}(?:(?P<gap>[{_SPACES}.-]?)\d{{4,6}})"
    r"(?:(?P=gap)\d{4,5}){1,2}(?:(?P=gap)\d{1,3})?(?![\w-])"
)
# The two letters of its country come before these digits.
_IBAN_CHECK = re.compile(r"\d(?<=[A-Za-z]{2}.)(?:(?<![\w-]...)|(?<=\\[nrt]...))\d")
_IBAN_OF = {
    chars: re.compile(rf"[A-Za-z0-9](?:[{_SPACES}]?[A-Za-z0-9]){{{chars - 1}}}(?![\w-])")
    for chars in set(_IBAN_CHARS.values())
}


def without_secrets(text: str, mask: str = MASK) -> str:
    """The text without anything shaped like a key, a token or a password."""
    if "-----BEGIN " in text:
        text = _without_private_keys(text, mask)
    folded = text.casefold()
    for hints, shape in _SECRETS:
        if _has_any(folded if hints is _NAMES else text, hints):
            text = shape.sub(lambda found: _rest(found, mask), text)
    return text


def _has_any(text: str, hints: tuple[str, ...]) -> bool:
    for hint in hints:  # noqa: SIM110 - `any` takes three times as long, and pages show thousands of texts
        if hint in text:
            return True
    return False


def without_personal(text: str, mask: str = MASK) -> str:
    """The text without email addresses, telephone numbers, payment cards and bank accounts."""
    text = _without_addresses(text, mask)
    if not _DIGIT.search(text):
        return text
    if "+" in text:
        text = _PHONE.sub(mask, text)
    text = _without_accounts(text, mask)
    return _CARD.sub(lambda found: mask if is_card(found[0]) else found[0], text)


def clean(text: str, mask: str = MASK) -> str:
    """The text without either."""
    return without_personal(without_secrets(text, mask), mask)


def shortened(text: str, most: int) -> str:
    """At most this many characters, then "…" for the rest. A masked part is dropped whole: cut, it would not be
    recognised.
    """
    if len(text) <= most:
        return text
    shown, kept = clean(text), text[: most - 1].rstrip()
    while kept and not shown.startswith(clean(kept)):
        kept = "".join(kept.rsplit(None, 1)[:-1])
    return f"{kept}…"


MOST_BITS = 256


def within(value: Any, change: Callable[[str], str], keeps: Container[str] = ()) -> Any:
    """A JSON value with all its texts and keys changed, but for keys that it keeps. A number that would be masked as
    text is masked too.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        shown: dict[Any, Any] = {}
        for name, item in value.items():
            stays = not isinstance(name, str) or name in keeps
            shown[name if stays else _another(change(name), shown)] = within(item, change, keeps)
        return shown
    if isinstance(value, list | tuple):
        return [within(item, change, keeps) for item in value]
    # No real number is that long, and Python refuses to write out thousands of digits.
    is_number = isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= MOST_BITS)
    is_number = is_number and not isinstance(value, bool)
    return MASK if is_number and change(str(value)) == MASK else value


def _another(name: str, taken: Container[str]) -> str:
    """The name, or the next one like it, so that two keys that now look the same lose neither value."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name} ({number})"
    return found


def is_card(text: str) -> bool:
    """Whether these digits are a payment card number: a scheme's first digits, its length, and the check digit."""
    digits = [int(one) for one in text if one.isdigit()]
    if _ISSUED.fullmatch("".join(map(str, digits))) is None:
        return False
    doubled = [sum(divmod(2 * one, 10)) for one in digits[-2::-2]]
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Whether this is a bank account number: the right length for its country, and the right check digits."""
    plain = "".join(text.split()).upper()
    if len(plain) != _IBAN_CHARS.get(plain[:2]) or not plain.isascii() or not plain.isalnum():
        return False
    return int((plain[4:] + plain[:4]).translate(_AS_DIGITS)) % 97 == 1


def _without_addresses(text: str, mask: str) -> str:
    """Look for addresses at their signs, which most texts have few of. Text between signs is never searched twice."""
    kept, at, since = [], 0, 0
    for sign in _AT.finditer(text):
        domain = _BEHIND_AT.match(text, sign.end())
        if domain is not None:
            name = _BEFORE_AT.search(text, max(since, sign.start() - _MOST_BEFORE_AT), sign.end())
            if name is not None:
                kept += [text[at : name.start()], mask]
                at = since = domain.end()
                continue
        since = max(since, sign.end())
    return "".join([*kept, text[at:]]) if kept else text


def _without_accounts(text: str, mask: str) -> str:
    """Words may follow an account number: the country says where it ends."""
    kept, at = [], 0
    for check in _IBAN_CHECK.finditer(text):
        start = check.start() - 2
        chars = _IBAN_CHARS.get(text[start : check.start()].upper())
        found = _IBAN_OF[chars].match(text, start) if chars and start >= at else None
        if found is not None and is_iban(found[0]):
            kept += [text[at:start], mask]
            at = found.end()
    return "".join([*kept, text[at:]]) if kept else text


def _without_private_keys(text: str, mask: str) -> str:
    """One pass: the next end is searched for again only after the last one."""
    kept, at = [], 0
    end = _PEM_END.search(text)
    while (begin := _PEM_BEGIN.search(text, at)) is not None:
        while end is not None and end.start() < begin.end():
            end = _PEM_END.search(text, end.end())
        kept += [text[at : begin.start()], mask]
        body = end or _PEM_BODY.match(text, begin.end())  # without an end it was cut off
        at = body.end() if body else begin.end()
    return "".join([*kept, text[at:]])


def _rest(found: re.Match[str], mask: str) -> str:
    """What comes before a secret says what it was, and stays."""
    start, end = found.span("secret")
    return f"{found.string[found.start() : start]}{mask}{found.string[end : found.end()]}"
