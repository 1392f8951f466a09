"""The one line that asks the audit trail: `who:dana did:approved took:<3s since:7d "shipping"`. Pure.

A condition is a word, a colon and one or more values separated by commas, one of which must match. A minus before it
negates it. Anything without a colon is searched for as text. Every condition must hold. Mistakes are named, with what
may have been meant, and nothing that was typed is lost.
"""

import difflib
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from agentapp.audit import moments
from agentapp.audit.vocabulary import WORDS as DEEDS

TEXT = ""
MAX_CHARS = 500
MAX_TERMS = 24
MAX_VALUES = 20
RISKS = ("low", "medium", "high", "critical")
MARKS = ("good", "wrong", "harmful")
VIAS = ("console", "token", "customer", "system", "model")
_COMPARISONS = ("<=", ">=", "<", ">")
_UNITS = {"ms": 1, "s": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s?(ms|s|min|m|h|d)")
_NEEDS_QUOTES = re.compile(r'[\s,"\\]')
_SHORT = {"run": re.compile(r"(?i)(?:run_)?[0-9a-f]{6}"), "approval": re.compile(r"(?i)(?:apr-)?[0-9a-f]{6}")}


@dataclass(frozen=True)
class Term:
    """One condition. `word` is TEXT for what is searched for as text."""

    word: str
    values: tuple[str, ...]
    negated: bool = False

    def __str__(self) -> str:
        values = ",".join(map(quoted, self.values)) if self.word else _in_quotes(self.values[0])
        return f"{'-' if self.negated else ''}{f'{self.word}:' if self.word else ''}{values}"


@dataclass(frozen=True)
class Problem:
    """A mistake, in a sentence, and the whole line as it may have been meant, if that can be guessed."""

    sentence: str
    fixed: str = ""


class Malformed(ValueError):
    """The line is not a valid query. `problems` says everything that is wrong."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(problem.sentence for problem in self.problems))


@dataclass(frozen=True)
class Query:
    """Conditions in the order they were typed. Its text reads back as the same query."""

    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    def of(self, word: str) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if term.word == word)

    def with_value(self, word: str, value: str) -> "Query":
        """This query with one more condition. It replaces another value of the same word: both could never hold."""
        return Query((*(term for term in self.terms if term.word != word or term.negated), Term(word, (value,))))

    def without(self, word: str) -> "Query":
        return Query(tuple(term for term in self.terms if term.word != word))


@dataclass(frozen=True)
class Amount:
    """A bound: `operator` is one of <, <=, >, >= or =."""

    operator: str
    number: Decimal


def parse(text: str) -> Query:
    """Read one line. Raises Malformed, with everything that is wrong."""
    if len(text) > MAX_CHARS:
        raise Malformed([Problem(f"This is longer than {MAX_CHARS} characters, so nothing was searched for.")])
    terms, problems = [], []
    for token in _tokens(text):
        try:
            terms.append(_term(token.text))
        except _Wrong as wrong:
            fixed = text[: token.start] + wrong.instead + text[token.end :] if wrong.instead else ""
            problems.append(Problem(str(wrong), fixed))
    if len(terms) > MAX_TERMS:
        problems.append(Problem(f"At most {MAX_TERMS} conditions are allowed; these are {len(terms)}."))
    if problems:
        raise Malformed(problems)
    return Query(tuple(terms))


def unknown(word: str, value: str, known: Iterable[str], query: Query) -> Problem:
    """The problem with a name that nothing has, with the nearest name that exists."""
    sentence, near = f"There is no {NAMES.get(word, word)} `{value}`.", nearest(value, known)
    if not near:
        return Problem(sentence)
    terms = tuple(
        replace(term, values=tuple(near if one == value else one for one in term.values)) if term.word == word else term
        for term in query.terms
    )
    return Problem(f"{sentence} Did you mean `{near}`?", str(Query(terms)))


def nearest(typed: str, known: Iterable[str]) -> str:
    """The known word most like what was typed. Empty if none is similar."""
    by_lower = {name.lower(): name for name in known}
    typed = typed.lower()
    found = difflib.get_close_matches(typed, by_lower, n=1, cutoff=0.5)
    begun = sorted((name for name in by_lower if typed and name.startswith(typed)), key=len)
    return by_lower[(begun or found or [""])[0]] if begun or found else ""


def quoted(value: str) -> str:
    """A value as it is typed after a word."""
    return _in_quotes(value) if not value or _NEEDS_QUOTES.search(value) else value


def _in_quotes(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def amount(value: str) -> Amount:
    """A value of `cost:`, in dollars. Raises ValueError."""
    operator, rest = _operator(value)
    return Amount(operator, _decimal(rest.removeprefix("$")))


def span_ms(value: str) -> Amount:
    """A value of `took:` or `seen:`, in milliseconds: "<3s", ">=1.5min", "2h". Raises ValueError."""
    operator, rest = _operator(value)
    found = _SPAN.fullmatch(rest)
    if found is None:
        raise ValueError("no length of time")
    return Amount(operator, _decimal(found[1]) * _UNITS[found[2]])


def identity(value: str) -> uuid.UUID | None:
    """A value of `run:` or `approval:` as a key. None if it is the short name that people read."""
    try:
        return uuid.UUID(value)
    except ValueError:
        return None


def _operator(value: str) -> tuple[str, str]:
    found = next((sign for sign in _COMPARISONS if value.startswith(sign)), "")
    return found or "=", value[len(found) :].strip()


def _decimal(text: str) -> Decimal:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,8})?", text, re.ASCII):
        raise ValueError("no amount")
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError("no amount") from error


# ---- reading


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int


class _Wrong(Exception):
    """What is wrong with one token, and what to put in its place."""

    def __init__(self, sentence: str, instead: str = "") -> None:
        super().__init__(sentence)
        self.instead = instead


# Up to the next space outside quotes. A quote that is never closed reaches to the end.
_TOKEN = re.compile(r'(?:"(?:[^"\\]|\\.)*"?|[^\s"])+', re.DOTALL)
_WORD = re.compile(r"(-?)([A-Za-z_-]+):(.*)", re.DOTALL)
_VALUE = re.compile(r'"((?:[^"\\]|\\.)*)("?)|([^,"]+)', re.DOTALL)


def _tokens(text: str) -> Iterable[_Token]:
    for found in _TOKEN.finditer(text):
        yield _Token(found[0], found.start(), found.end())


def _term(token: str) -> Term:
    found = _WORD.fullmatch(token)
    if found is None:
        negated = token.startswith("-") and len(token) > 1
        return Term(TEXT, (_text(token[1:] if negated else token),), negated)
    minus, typed, rest = found[1], found[2], found[3]
    word = typed.lower()
    if word not in CHECKS:
        near = nearest(word, CHECKS)
        meant = f"{minus}{near}:{rest}" if near else f"{minus}{_in_quotes(token.removeprefix('-'))}"
        hint = f"Did you mean `{near}`?" if near else "Put it in quotes to search for it as text."
        raise _Wrong(f"There is no word `{typed}`. {hint}", meant)
    values = _values(rest, word, minus)
    return Term(word, tuple(_checked(word, values, minus)), bool(minus))


def _checked(word: str, values: list[str], minus: str) -> Iterable[str]:
    for value in values:
        try:
            yield CHECKS[word](value, word)
        except _Wrong as wrong:
            if wrong.instead:
                meant = ",".join(quoted(wrong.instead if one == value else one) for one in values)
                raise _Wrong(str(wrong), f"{minus}{word}:{meant}") from wrong
            raise


def _text(token: str) -> str:
    """Text to search for: what is between quotes, or the word as it was typed."""
    if not token.startswith('"'):
        return token.replace('"', "") or _nothing()
    found = _VALUE.match(token)
    assert found is not None
    if not found[2]:
        raise _Wrong("A quote is never closed.", f'{token}"' if not token.endswith("\\") else "")
    if found.end() != len(token):
        raise _Wrong(f"`{token}` continues after its closing quote. Put a space there.", "")
    return _unescaped(found[1]).strip() or _nothing()


def _nothing() -> str:
    raise _Wrong("There is nothing between the quotes.")


def _values(rest: str, word: str, minus: str) -> list[str]:
    values, at = [], 0
    while at < len(rest):
        found = _VALUE.match(rest, at)
        if found is None:
            raise _Wrong(f"`{word}:` has a comma too many.")
        if found[3] is None and not found[2]:
            raise _Wrong(f"The quote after `{word}:` is never closed.", f'{minus}{word}:{rest}"')
        values.append(found[3] if found[3] is not None else _unescaped(found[1]))
        at = found.end()
        if at < len(rest):
            if rest[at] != "," or at + 1 == len(rest):
                raise _Wrong(f"Put one comma between the values of `{word}:`.")
            at += 1
    if not values or not all(value.strip() for value in values):
        raise _Wrong(f"`{word}:` has no value.")
    if len(values) > MAX_VALUES:
        raise _Wrong(f"`{word}:` has {len(values)} values; at most {MAX_VALUES} are allowed.")
    return [value.strip() for value in values]


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


# ---- what a value must be


def _any(value: str, word: str) -> str:
    return value


def _one_of(known: tuple[str, ...]) -> Callable[[str, str], str]:
    def check(value: str, word: str) -> str:
        if value.lower() in known:
            return value.lower()
        near = nearest(value, known)
        hint = f" Did you mean `{near}`?" if near else f" There are {', '.join(known)}." if len(known) < 8 else ""
        raise _Wrong(f"`{word}:` knows no `{value}`.{hint}", near)

    return check


def _bound(read: Callable[[str], Amount], example: str) -> Callable[[str, str], str]:
    def check(value: str, word: str) -> str:
        try:
            read(value)
        except ValueError as error:
            raise _Wrong(f"`{word}:` takes a bound, such as `{word}:{example}`; `{value}` is not one.") from error
        return value.replace(" ", "")

    return check


def _moment(value: str, word: str) -> str:
    if moments.read(value) is None or (word == "until" and ".." in value):
        hint = "`7d`, `24h`, `today`, `yesterday`, a day such as `2026-11-01` or a moment such as `2026-11-01T14:00`"
        raise _Wrong(f"`{word}:` takes {hint}; `{value}` is none of them.")
    return value.lower()


def _key(value: str, word: str) -> str:
    if identity(value) is None and not _SHORT[word].fullmatch(value):
        raise _Wrong(f"`{value}` names no {NAMES.get(word, word)}: give a reference as people read it, or a whole id.")
    return value.lower()


NAMES = {"who": "person", "approval": "request", "rule": "policy"}
CHECKS: dict[str, Callable[[str, str], str]] = {
    "who": _any,
    "did": _one_of(DEEDS),
    "tool": _any,
    "risk": _one_of(RISKS),
    "took": _bound(span_ms, "<3s"),
    "seen": _bound(span_ms, "<3s"),
    "cost": _bound(amount, ">1"),
    "since": _moment,
    "until": _moment,
    "run": _key,
    "approval": _key,
    "agent": _any,
    "team": _any,
    "rule": _any,
    "via": _one_of(VIAS),
    "judged": _one_of(MARKS),
}
