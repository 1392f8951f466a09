"""Secrets and personal data in texts that nobody has marked: found by shape, and by checksums where they have one.

A small set, chosen to be right where it says something: what it finds is replaced on pages, in logs and in messages,
and a word that is no secret must stay. It promises nothing about what has no shape, as names and addresses of houses:
fields that hold those are marked (`Tool.pii_fields`). Each expression has bounds, and none begins twice in the same
word, so that what a text takes grows as its length does, whoever wrote it.
"""

import re
from collections.abc import Callable, Container
from typing import Any

MASK = "••••••"
# How many characters an account has in each country (ISO 13616 registry).
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
# Behind a line break that is written as in JSON begins a word, too.
_BEHIND_BREAK = r"(?<=\\[nrt])"

_PEM_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_PEM_BODY = re.compile(r"[\w\s+/=\\:,-]*")
_SECRETS = re.compile(
    r"""
      (?:(?<![\w-])|(?<=\\[nrt]))(?P<key>
          sk[-_](?=[\w-]{0,60}\d)[A-Za-z0-9_-]{20,200}   # OpenAI, Anthropic, Stripe
        | [rp]k_(?:live|test)_[A-Za-z0-9]{16,200}
        | gh[pousr]_[A-Za-z0-9]{30,255} | github_pat_\w{50,255} | glpat-[\w-]{20,64} | npm_[A-Za-z0-9]{36}
        | (?:AKIA|ASIA)[0-9A-Z]{16} | AIza[\w-]{35} | GOCSPX-[\w-]{20,64}
        | xox[abeoprs]-[A-Za-z0-9-]{10,250} | SG\.[\w-]{16,64}\.[\w-]{16,64} | hf_[A-Za-z0-9]{30,64}
        | eyJ[\w-]{8,4000}\.eyJ[\w-]{2,8000}\.[\w-]{8,2000}   # a signed JSON web token
      )(?![\w-])
    | (?:\b[Bb]earer[ ]{1,4})(?P<bearer>(?=[\w.~+/-]{0,200}\d)[\w.~+/-]{20,2000}=*)
    | (?:\b[Bb]asic[ ]{1,4})(?P<basic>(?=[A-Za-z0-9+/]{0,200}[\d=])[A-Za-z0-9+/]{8,2000}={0,2})(?!\w)
    | (?:[?&;](?:password|passwd|pwd|secret|api_?key|apikey|access_token|refresh_token|auth_token|client_secret)=)
      (?P<query>[^&\s"'<>#]{4,500})
    | (?:(?<![A-Za-z])(?i:password|passwd|passphrase|api[-_]?key|(?:secret|private)[-_]key
          | client[-_]secret | (?:access|refresh|auth)[-_]token)
        (?:\\{0,3}["']|&quot;|&\#x27;)?[ ]{0,3}[:=][ ]{0,3}(?:\\{0,3}["']|&quot;|&\#x27;)?)
      (?P<named>(?=[^\s"'<>&,;\\•]{0,200}[\d!$%^*])[^\s"'<>&,;\\•]{4,500})
    | (?:\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@"'<>]{0,100}:)(?P<userinfo>[^\s/@"'<>]{3,200})(?=@)
    """,
    re.VERBOSE | re.DOTALL,
)
_SECRET_HINTS = (
    "sk-", "sk_", "k_live_", "k_test_", "gh", "glpat-", "npm_", "AKIA", "ASIA", "AIza", "GOCSPX", "xox",
    "SG.", "hf_", "eyJ", "earer ", "asic ", "=", ":",
)  # fmt: skip

_EMAIL = re.compile(
    r"(?:(?<![\w.%+-])|(?<=%[0-9A-Fa-f]{2}))\w(?:[\w.+-]|%2[Bb]){0,63}(?:@|%40)"
    r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,6}[^\W\d_]{2,24}(?![^\W_])"
)
_PHONE = re.compile(rf"(?<![\w+])\+[1-9](?:[{_SPACES}./()-]{{0,2}}\d){{7,14}}(?![\w])")
_CARD = re.compile(
    rf"(?:(?<![\w.+-])|{_BEHIND_BREAK})[2-6]\d{{3}}(?:(?P<gap>[{_SPACES}.-]?)\d{{4,6}})"
    r"(?:(?P=gap)\d{4,5}){1,2}(?:(?P=gap)\d{1,3})?(?![\w-])"
)
_IBAN_HEAD = re.compile(rf"(?:(?<![\w-])|{_BEHIND_BREAK})[A-Za-z]{{2}}(?=\d\d)")
_IBAN_OF = {
    chars: re.compile(rf"[A-Za-z0-9](?:[{_SPACES}]?[A-Za-z0-9]){{{chars - 1}}}(?![\w-])")
    for chars in set(_IBAN_CHARS.values())
}


def without_secrets(text: str, mask: str = MASK) -> str:
    """The text without what has the shape of a key, a token or a password."""
    if "-----BEGIN " in text:
        text = _without_private_keys(text, mask)
    if not any(hint in text for hint in _SECRET_HINTS):
        return text
    return _SECRETS.sub(lambda found: _rest(found, mask), text)


def without_personal(text: str, mask: str = MASK) -> str:
    """The text without addresses of mail, telephone numbers, payment cards and bank accounts."""
    if "@" in text or "%40" in text:
        text = _EMAIL.sub(mask, text)
    if not any(character.isdigit() for character in text):
        return text
    if "+" in text:
        text = _PHONE.sub(mask, text)
    text = _without_accounts(text, mask)
    return _CARD.sub(lambda found: mask if is_card(found[0]) else found[0], text)


def clean(text: str, mask: str = MASK) -> str:
    """The text without either."""
    return without_personal(without_secrets(text, mask), mask)


def shortened(text: str, most: int) -> str:
    """At most so many characters, then "…" for the rest. What would be masked goes as a whole: cut, it is not known."""
    if len(text) <= most:
        return text
    shown, kept = clean(text), text[: most - 1].rstrip()
    while kept and not shown.startswith(clean(kept)):
        kept = "".join(kept.rsplit(None, 1)[:-1])
    return f"{kept}…"


MOST_BITS = 256


def within(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each of its texts, and keys, changed. A number that as a text would be a mask becomes one."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        shown: dict[Any, Any] = {}
        for name, item in value.items():
            shown[_another(change(name), shown) if isinstance(name, str) else name] = within(item, change)
        return shown
    if isinstance(value, list | tuple):
        return [within(item, change) for item in value]
    # No number that anybody has is that long, and Python writes none of thousands of digits.
    is_number = isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= MOST_BITS)
    is_number = is_number and not isinstance(value, bool)
    return MASK if is_number and change(str(value)) == MASK else value


def _another(name: str, taken: Container[str]) -> str:
    """The name, or the next one like it: of two keys that look the same by now, neither value is lost."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name} ({number})"
    return found


def is_card(text: str) -> bool:
    """Whether these digits are the number of a payment card: 13 to 19 of them, with the right check digit (Luhn)."""
    digits = [int(one) for one in text if one.isdigit()]
    doubled = [sum(divmod(2 * one, 10)) for one in digits[-2::-2]]
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Whether this is the number of a bank account: as long as its country has them, its check digits right."""
    plain = "".join(text.split()).upper()
    if len(plain) != _IBAN_CHARS.get(plain[:2]) or not plain.isascii() or not plain.isalnum():
        return False
    return int((plain[4:] + plain[:4]).translate(_AS_DIGITS)) % 97 == 1


def _without_accounts(text: str, mask: str) -> str:
    """Words may stand behind an account: the country says where it ends."""
    kept, at = [], 0
    for head in _IBAN_HEAD.finditer(text):
        chars = _IBAN_CHARS.get(head[0].upper())
        found = _IBAN_OF[chars].match(text, head.start()) if chars and head.start() >= at else None
        if found is not None and is_iban(found[0]):
            kept += [text[at : head.start()], mask]
            at = found.end()
    return "".join([*kept, text[at:]]) if kept else text


def _without_private_keys(text: str, mask: str) -> str:
    """One pass: where the next end stands is looked up anew only behind the last one."""
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
    """What stands before a secret tells what it was, and stays."""
    kind = found.lastgroup or "key"
    start, end = found.span(kind)
    return f"{found.string[found.start() : start]}{mask}{found.string[end : found.end()]}"
