"""The last check of what leaves over HTTP: no secrets, and no personal data for people without the right to see it.

Pages, fragments and API answers mask what they know to be secret. This stands behind all of them. It removes from every
answer whatever has the shape of a key or a password. For people without the right, it also removes what looks like an
address, or the number of a card, an account or a telephone, and every value marked in the calls the answer was made
from. Only what a person has typed comes back unchanged, in the field they typed it into. If more is marked than can be
searched, there is no answer.

On the pages of a run, the right alone shows nothing: a person who has it asks to see, which goes on record, and then
sees it for some minutes (`agentapp.disclosing`).
"""

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from html import unescape
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import SuspiciousOperation
from django.db.models import Exists
from django.http import HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.utils.decorators import sync_only_middleware
from django.utils.safestring import SafeString, mark_safe

from agentapp.marked_values import Values
from agentapp.models import Tool
from approvals import lens
from approvals.blots import blotting
from approvals.detectors import clean, without_secrets
from approvals.lens import Lens

REVEAL = "approvals.reveal_pii"
SHOWN_SECONDS = 15 * 60
_SHOWN, _MOST_SHOWN = "personal_data_of_runs", 20
_OF_RUN = re.compile(r"/runs/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/")
# Pages about people who work here, and answers to customers about themselves: not masked.
_OWN = (
    "/settings/",
    "/login",
    "/reauthenticate/",
    "/accounts/",
    "/talk/",
    "/admin/auth/",
    "/api/v1/openapi",
    "/api/v1/docs",
)
# How much is searched for marked values. Nothing is shown of what has more.
MOST_CALLS, MOST_CHARS = 5000, 8_000_000
_MARKS, _MARKS_SECONDS = "tools-have-marks", 5
_TEXTS = ("text/html", "text/plain", "text/csv")
_JSON = ("application/json", "application/problem+json")
# Fields, and everything else that is a tag or text.
_PIECES = re.compile(r"(<textarea\b[^>]*>.*?</textarea>|<style\b.*?</style>|<[^>]*>)", re.DOTALL | re.IGNORECASE)
# Names of releases, events and parts of the page are ours alone.
_SAID = re.compile(
    r"""(?P<before>\s(?:href|title|alt|content|placeholder|aria-[a-z]+|data-(?!release=)[a-z-]+"""
    r"""|hx-(?!trigger|target|swap|sync)[a-z-]+)=")(?P<said>[^"]+)(?=")"""
)
_VALUE = re.compile(r"""(?P<before>\svalue=")(?P<said>[^"]+)(?=")""")
_AREA = re.compile(r"(<textarea\b[^>]*>)(.*)(</textarea>)", re.DOTALL | re.IGNORECASE)
_NAME = re.compile(r"""\sname="([^"]*)\"""")
# Its value is random, so anything short may stand in it; with a mask in it, the form is refused.
_OF_FORMS = "csrfmiddlewaretoken"
_EMPHASIS = re.compile(r"</?mark\b[^>]*>")
# The fields of these forms are saved as they stand, by people who may see them.
_FORMS = ("/admin/",)

our_names: list[Callable[[], Collection[str]]] = []
"""Each gives the names of fields that answers in JSON have, whatever they are about. They are never masked."""

type Given = Mapping[str, Collection[str]]
"""What came with a request: values by the names of their fields."""


class PasskeyOptions(JsonResponse):
    """What a passkey is asked to sign. It is left as it is: one random challenge, or id of a passkey, in 90,000 has the
    shape of a key, and with a mask in its place nobody could sign.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({"request_options": options})


@sync_only_middleware
def middleware(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    def answered(request: HttpRequest) -> HttpResponseBase:
        own = request.path.startswith(_OWN)
        with lens.put_up(Lens(is_open=own or _opens(request))) as through:
            response = get_response(request)
            if not own and isinstance(response, HttpResponse) and not isinstance(response, PasskeyOptions):
                _look_over(response, through, request)
        return response

    return answered


def look_for(user: object) -> None:
    """Apply the rights of a token's person, who is only known now."""
    has_perm = getattr(user, "has_perm", None)
    if has_perm is not None and has_perm(REVEAL):
        lens.show()


def may_see(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return user is not None and user.is_authenticated and user.has_perm(REVEAL)


def shown_until(request: HttpRequest, run_id: uuid.UUID | str) -> datetime | None:
    """Until when this session shows the personal data of a run. None: it is masked."""
    until = request.session.get(_SHOWN, {}).get(str(run_id), 0)
    return datetime.fromtimestamp(until, UTC) if until > time.time() and may_see(request) else None


def show_of_run(request: HttpRequest, run_id: uuid.UUID) -> None:
    """Show a run's personal data in this session for a while. The caller has recorded the request."""
    now = time.time()
    kept = {run: until for run, until in request.session.get(_SHOWN, {}).items() if until > now and run != str(run_id)}
    latest = sorted(kept.items(), key=lambda item: item[1])[1 - _MOST_SHOWN :]
    request.session[_SHOWN] = {**dict(latest), str(run_id): int(now) + SHOWN_SECONDS}


def hide_of_run(request: HttpRequest, run_id: uuid.UUID) -> None:
    kept = request.session.get(_SHOWN, {})
    request.session[_SHOWN] = {run: until for run, until in kept.items() if run != str(run_id)}


def _opens(request: HttpRequest) -> bool:
    of_run = _OF_RUN.match(request.path_info)
    return may_see(request) if of_run is None else shown_until(request, of_run[1]) is not None


def hides() -> bool:
    """Whether personal data is masked in this answer."""
    return bool(lens.hidden((), ("any",)))


def legible[Key](words: str, said: Iterable[tuple[Key, object, str]]) -> list[Key]:
    """The keys of the texts (key, run, text) that contain the words as this reader sees them: masked text is not found.

    Otherwise masked text could be guessed letter by letter. At most four queries.
    """
    told, through = list(said), lens.current()
    if not told or through is None or through.is_open:
        return [key for key, _, text in told if words.lower() in text.lower()]
    known, texts = _known_of({run for _, run, _ in told}, set()), "\n".join(text for *_, text in told)
    blot = blotting(known, texts, spares_made_here=True)
    return [key for key, _, text in told if words.lower() in clean(blot(text)).lower()]


def beside(request: HttpRequest, html: str) -> SafeString:
    """A part of a page, masked as without the card next to it, which may show personal data of its own request only."""
    through = lens.current()
    if through is None or not through.is_open or may_see(request):
        return mark_safe(html)  # noqa: S308 — a template has made it
    return mark_safe(_html(html, _changing(_marked(through), html, is_open=False), request))  # noqa: S308


def _look_over(response: HttpResponse, through: Lens, request: HttpRequest) -> None:
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    if kind not in (*_TEXTS, *_JSON) or response.has_header("Content-Encoding"):
        return
    text = response.content.decode(response.charset or "utf-8", "surrogateescape")
    known = set() if through.is_open else _marked(through)
    if kind in _JSON:
        shown = _json(text, known, through.is_open)
    else:
        change = _changing(known, text, through.is_open)
        shown = _html(text, change, request) if kind == "text/html" else change(text)
    if shown != text:
        response.content = shown.encode(response.charset or "utf-8", "surrogateescape")
        if response.has_header("Content-Length"):
            response.headers["Content-Length"] = str(len(response.content))


def _marked(through: Lens) -> set[str]:
    """The values marked in what was read, and in the calls of the runs it belongs to."""
    return _known_of(through.runs - {None}, through.texts(), bool(through.rows))


def _known_of(runs: Collection[Any], known: set[str], is_marked: bool = False) -> set[str]:
    """These values, and those marked in the calls of runs. Raises TooMuchMarked."""
    if not runs or not (is_marked or _any_marks()):
        return known
    return known | Values(most_rows=MOST_CALLS, most_chars=MOST_CHARS).read(runs)


def _any_marks() -> bool:
    """Whether any tool has marks. Looked up at most every few seconds: most installations have none for long."""
    found = caches["process"].get(_MARKS)
    if found is None:
        found = Tool.objects.exclude(pii_fields=[]).exists()
        note_marks(found)
    return bool(found)


def marks() -> Exists:
    """Whether any tool has marks, for a page that runs a query anyway and then passes the result to `note_marks`."""
    return Exists(Tool.objects.exclude(pii_fields=[]))


def note_marks(found: bool) -> None:
    caches["process"].set(_MARKS, found, _MARKS_SECONDS)


def _json(text: str, known: set[str], is_open: bool) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _changing(known, text, is_open)(text)
    if lens.seen(value, known, is_open) == value:
        return text
    # Collecting the names takes a large part of a second, once in a process, which most answers need not wait for.
    shown = lens.seen(value, known, is_open, {name for names in our_names for name in names()})
    _say_what_is_masked(value, shown)
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def _say_what_is_masked(value: Any, shown: Any) -> None:
    """Mark events whose body is masked: its hash no longer matches, just as if the body had been changed."""
    items = value.get("items") if isinstance(value, dict) else None
    for before, after in zip(items, shown["items"], strict=True) if isinstance(items, list) else ():
        if isinstance(before, dict) and before.get("masked") is False and before.get("body") != after.get("body"):
            after["masked"] = True


def _html(text: str, change: Callable[[str], str], request: HttpRequest) -> str:
    if "<mark" in text and change(bare := _EMPHASIS.sub("", text)) != bare:
        text = bare  # emphasised search hits would split a value into parts that are not recognised
    if change(text) == text:  # the usual case
        return text
    given = None if request.path.startswith(_FORMS) else _given(request)
    asked = _asked(request)
    pieces = _PIECES.split(text)
    return "".join(_tag(each, change, given, asked) if at % 2 else change(each) for at, each in enumerate(pieces))


def _given(request: HttpRequest) -> Given:
    """What was typed in this request, as texts with one kind of line break."""
    try:
        sent = [request.GET, request.POST] if request.method == "POST" else [request.GET]
    except (SuspiciousOperation, UnreadablePostError):
        sent = []
    found: dict[str, set[str]] = {}
    for query in sent:
        for name, values in query.lists():
            found.setdefault(name, set()).update(_plain(str(value)) for value in values)
    return found


def _asked(request: HttpRequest) -> re.Pattern[str] | None:
    """The query of this address, as it appears in the page's own links, which repeat the same question."""
    pairs = [urlencode({name: value}) for name, values in request.GET.lists() for value in values if value]
    told = "|".join(re.escape(pair) for pair in sorted(set(pairs), key=len, reverse=True))
    return re.compile(rf"((?<=[?&;])(?:{told})(?=&|\#|$))") if pairs else None


def _tag(piece: str, change: Callable[[str], str], given: Given | None, asked: re.Pattern[str] | None) -> str:
    """`given`: what was typed, and stays. None: everything in fields stays."""
    name = _NAME.search(piece)
    if name is not None and name[1] == _OF_FORMS:
        return piece
    typed = () if given is None or name is None else given.get(unescape(name[1]), ())

    def shown(value: str) -> str:
        return value if given is None or _plain(unescape(value)) in typed else change(value)

    area = _AREA.fullmatch(piece)
    if area is not None:
        return f"{area[1]}{shown(area[2])}{area[3]}"
    said = _SAID.sub(lambda found: found["before"] + _said(found["before"], found["said"], change, asked), piece)
    return _VALUE.sub(lambda found: found["before"] + shown(found["said"]), said)


def _said(before: str, text: str, change: Callable[[str], str], asked: re.Pattern[str] | None) -> str:
    if change(text) == text:
        return text
    path, mark, query = text.partition("?")
    leads_here = before.strip().startswith(("href=", "hx-")) and _leads_here(path)
    ours, text = (path, mark + query) if leads_here else ("", text)
    parts = asked.split(text) if asked is not None else [text]
    return ours + "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def _leads_here(path: str) -> bool:
    """Whether this is an address of ours in which nothing is named but by its key."""
    if path.startswith(settings.STATIC_URL):
        return True
    try:
        found = resolve(path)
    except Resolver404:
        return False
    named = found.captured_kwargs.values()  # type: ignore[attr-defined]  # not in the stubs
    return bool(found.url_name) and all(isinstance(value, uuid.UUID | int) for value in (*found.args, *named))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _changing(known: set[str], text: str, is_open: bool) -> Callable[[str], str]:
    if is_open:
        return without_secrets
    blot = blotting(known, text, spares_made_here=True)
    return lambda part: clean(blot(part))
