"""A model's claims, sentence by sentence, compared with the evidence. Pure: text in, text out, never markup.

A sentence cites evidence by number, as in [2]. If it contains something concrete, such as a number, an id, an
address or a quotation, that is looked up in the evidence; without a match it has no support.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

MAX_CHARS = 20_000
# A bracketed reference after the full stop belongs to the sentence before it.
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?![\s\"”’)\]])[^.!?\n]*)*(?:[.!?]+[\"”’)\]]*(?:[ ]?\[\d{1,3}\])*|\n|$)\s*")
# Citations are placed before the full stop of their sentence.
_STOPS, _CLOSING = ".!?", '"”’)]'
_EXPLICIT = re.compile(r"\[(\d{1,3})\]")
_QUOTED = re.compile(r"“([^“”\n]{3,200})”|\"([^\"\n]{3,200})\"|«([^«»\n]{3,200})»")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_TOKEN = re.compile(r"[$€£]?\w+(?:[.,:/_-]\w+)*%?")
_NUMBER = re.compile(r"[$€£]?(\d+(?:,\d{3})*(?:\.\d+)?|\d+\.\d+)%?")


@dataclass(frozen=True)
class Piece:
    """A piece of text, or the number of the evidence it rests on."""

    text: str
    cites: int = 0


@dataclass(frozen=True)
class Claim:
    """One sentence in pieces. `unsupported`: it says something concrete that is in no evidence."""

    pieces: tuple[Piece, ...]
    unsupported: bool = False


def claims_of(text: str, evidence: Mapping[int, str]) -> list[Claim]:
    """The sentences of a text, each with what supports it."""
    found = {number: _values(body) for number, body in evidence.items()}
    bodies = {number: _plain(body) for number, body in evidence.items()}
    return [_claim(sentence, found, bodies) for sentence in _sentences(text[:MAX_CHARS])]


def _sentences(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _SENTENCE.match(text, at)
        end = match.end() if match and match.end() > at else len(text)
        yield text[at:end]
        at = end


def _claim(sentence: str, found: Mapping[int, frozenset[str]], bodies: Mapping[int, str]) -> Claim:
    pieces, rest, at, named = [], [], 0, set()
    for mark in _EXPLICIT.finditer(sentence):
        number = int(mark[1])
        if number not in found:
            continue
        pieces += [Piece(sentence[at : mark.start()]), Piece("", number)]
        rest.append(sentence[at : mark.start()])
        named.add(number)
        at = mark.end()
    tail = sentence[at:].rstrip().rstrip(_CLOSING).rstrip(_STOPS)
    ending = sentence[at + len(tail) :]
    rest.append(sentence[at:])
    said = " ".join(rest)
    wanted: list[set[int]] = [{n for n, values in found.items() if value in values} for value in sorted(_values(said))]
    wanted += [{n for n, body in bodies.items() if quoted in body} for quoted in _quotations(said)]
    chosen: set[int] = set(named)
    for places in wanted:
        if places and not places & chosen:
            chosen.add(min(places))
    pieces.append(Piece(tail))
    pieces += [Piece("", number) for number in sorted(chosen - named)]
    pieces.append(Piece(ending))
    unsupported = any(not places for places in wanted) or any(int(n) not in found for n in _EXPLICIT.findall(said))
    return Claim(tuple(piece for piece in pieces if piece.text or piece.cites), unsupported)


def _values(text: str) -> frozenset[str]:
    """The concrete values of a text, each in one spelling. Small whole numbers do not count: they are everywhere."""
    plain = unicodedata.normalize("NFKC", text)
    values = {address.casefold().rstrip(".") for address in _ADDRESS.findall(plain)}
    for token in _TOKEN.findall(_ADDRESS.sub(" ", _EXPLICIT.sub(" ", plain))):
        values.update(_value(token))
    return frozenset(values)


def _value(token: str) -> Iterator[str]:
    number = _NUMBER.fullmatch(token)
    if number is not None:
        try:
            amount = Decimal(number[1].replace(",", ""))
        except InvalidOperation:
            return
        if len(number[1]) > 2 or token[0] in "$€£" or token.endswith("%"):
            yield format(amount.normalize(), "f")
    elif any(char.isdigit() for char in token) and len(token) > 2:
        yield token.casefold()


def _quotations(text: str) -> list[str]:
    return [_plain(next(filter(None, groups))) for groups in _QUOTED.findall(text)]


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
