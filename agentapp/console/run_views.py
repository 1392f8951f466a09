"""The views of a run's page: its timeline, what was said, what it cost, what is recorded."""

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest, QueryDict

from agentapp import auth, trace
from agentapp.audit import vocabulary
from agentapp.compilers import said_before
from agentapp.console import costs, inspector
from agentapp.console.find import Found, Place, find
from agentapp.console.shell import signed_in
from agentapp.models import Message, Run
from agentapp.timeline import Timeline
from agentapp.trace_rows import Row
from approvals import ledger
from approvals.models import Event

STEPS_PER_PAGE = 200
EVENTS_PER_PAGE = 200
# Rows drawn at first, and for each page that follows.
FIRST_ROWS, MORE_ROWS = 80, 200
# However much a reader has loaded, a refresh draws at most this many steps.
MOST_STEPS = 400
# At most this many messages from before this run are shown.
EARLIER_MESSAGES = 20
TABS = {
    "model": (("summary", "Summary"), ("messages", "Messages"), ("tools", "Tools offered"), ("raw", "Raw")),
    "call": (("summary", "Summary"), ("raw", "Raw")),
}
# Kept in every address within the timeline.
_KEPT = ("waits", "q", "open")


def _timeline(request: HttpRequest, found: Run, line: Timeline) -> dict[str, Any]:
    step, call = _number(request, "step"), _number(request, "call")
    viewer = signed_in(request)
    chosen = inspector.choose(found, line, step, call)
    inspected = inspector.inspect(found, line, chosen, viewer, request.GET.get("tab", "")) if chosen else None
    if chosen is None or inspected is None:
        raise Http404
    place = (chosen.step, chosen.call)
    marked = find(found, request.GET.get("q", ""))
    opened = _opened(request)
    first, upto = _number(request, "first") or 1, _number(request, "upto") or 0
    more = "first" in request.GET
    rows, last = line.window(first, MORE_ROWS if more else FIRST_ROWS, min(upto, first + MOST_STEPS), opened, place)
    if step is not None and not more and step > last:
        # Show the row that was asked for, with a few rows before it.
        first = max(1, step - 5)
        rows, last = line.window(first, FIRST_ROWS, min(upto, first + MOST_STEPS), opened, place)
    return {
        "rows": rows,
        "last": last,
        "earlier": max(1, first - STEPS_PER_PAGE) if first > 1 else None,
        "later": last + 1 if last < found.step_count else None,
        "chosen": chosen,
        "inspected": inspected,
        "tabs": TABS.get(chosen.kind, ()),
        "is_inspecting": step is not None,
        "shares": _shares(line),
        "kept": _kept(request),
        "toggles": {row.step: _toggled(request, opened, row.step) for row in rows if row.kind == "more"},
        "waits_open": request.GET.get("waits") == "open",
        "next_failure": _next(line.failures, place),
        "found": marked,
        "hits": marked.keys if marked else set(),
        **(_matches(marked, place) if marked else {}),
    }


def _matches(found: Found, place: Place) -> dict[str, Any]:
    previous, following = found.around(place)
    return {"match": found.number_of(place), "previous_match": previous, "next_match": following}


def _costs(request: HttpRequest, found: Run, line: Timeline) -> dict[str, Any]:
    first = max(1, _number(request, "first") or 1)
    last = first + STEPS_PER_PAGE - 1
    return {
        "by_model": costs.by_model(line),
        "by_tool": costs.by_tool(line),
        "by_step": costs.by_step(line, first, last),
        "budget": found.agent_snapshot.get("max_cost"),
        "earlier": max(1, first - STEPS_PER_PAGE) if first > 1 else None,
        "later": last + 1 if last < found.step_count else None,
    }


def _conversation(request: HttpRequest, found: Run, line: Timeline) -> dict[str, Any]:
    first = _number(request, "first") or 1
    last = first + STEPS_PER_PAGE - 1
    steps = (
        found.steps.filter(number__range=(first, last)).order_by("number").only("number", "text", "finished_at", "run")
    )
    calls: dict[int, list[Row]] = {}
    for row in line.of_steps(first, last):
        if row.kind == "call":
            calls.setdefault(row.step, []).append(row)
    before: list[Message] = []
    if found.conversation_id and first == 1:
        # Only what this person may see: a conversation may contain other people's runs.
        before = said_before(found, auth.visible_messages(signed_in(request)))[-EARLIER_MESSAGES:]
    return {
        "before": before,
        "turns": [(step, calls.get(step.number, [])) for step in steps.defer("disclosed_tools", "provider_parts")],
        "first": first,
        "earlier": max(1, first - STEPS_PER_PAGE) if first > 1 else None,
        "later": last + 1 if last < found.step_count else None,
    }


def _events(request: HttpRequest, found: Run, line: Timeline) -> dict[str, Any]:
    chain = ledger.run_chain(found.pk)
    after = _number(request, "after") or 0
    held, broken, events = ledger.read(chain, range(after + 1, after + EVENTS_PER_PAGE + 2))
    return {
        "events": [(event, *_said(event)) for event in events[:EVENTS_PER_PAGE]],
        "later": events[EVENTS_PER_PAGE - 1].seq if len(events) > EVENTS_PER_PAGE else None,
        "earlier": max(0, after - EVENTS_PER_PAGE) if after else None,
        "held": held,
        "broken": broken,
    }


def _said(event: Event) -> tuple[str, dict[str, Any] | None]:
    """What an event says was done, and its details: None if they cannot be read."""
    data = trace.said(event)
    return vocabulary.said(vocabulary.deed_of(event.type, event.body), event.type, data or {}), data


VIEWS: dict[str, Callable[[HttpRequest, Run, Timeline], dict[str, Any]]] = {
    "timeline": _timeline,
    "conversation": _conversation,
    "costs": _costs,
    "events": _events,
}


def _shares(line: Timeline) -> list[tuple[str, float, float]]:
    """Kind of work, where its bar begins and how wide it is, in percent. Kinds that took no time are left out."""
    totals, placed, x = line.totals, [], 0.0
    parts = (("model", totals.model_seconds), ("tool", totals.tool_seconds), ("failed", totals.failed_seconds))
    for kind, seconds in parts:
        width = 100 * seconds / totals.worked_seconds if totals.worked_seconds else 0.0
        if width:
            placed.append((kind, round(x, 2), round(width, 2)))
        x += width
    return placed


def _next(places: list[tuple[int, int]], place: Place) -> tuple[int, int] | None:
    """The first place after this one; else the first of all."""
    here = (place[0], -1 if place[1] is None else place[1])
    return next((found for found in places if found > here), places[0] if places else None)


def _opened(request: HttpRequest) -> set[int]:
    """The steps whose folded calls are shown."""
    return {int(text) for text in request.GET.get("open", "")[:200].split(".") if text.isascii() and text.isdigit()}


def _kept(request: HttpRequest, **changed: str) -> str:
    """The unfolded parts and the search words, for appending to an address of the timeline."""
    query = QueryDict(mutable=True)
    for name in _KEPT:
        if value := changed.get(name, request.GET.get(name, "")):
            query[name] = value
    return f"&{query.urlencode()}" if query else ""


def _toggled(request: HttpRequest, opened: set[int], step: int) -> str:
    return _kept(request, open=".".join(str(number) for number in sorted(opened ^ {step})))


def _number(request: HttpRequest, name: str) -> int | None:
    """A whole number from the address. Anything else counts as not given."""
    raw = request.GET.get(name, "")
    return int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 10 else None
