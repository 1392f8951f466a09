"""Who influenced a call's arguments without writing them, by asking about it or saying how it should be. Reads rows.

When it comes to approving the call, what the agent then proposes counts as theirs, like what they change themselves.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from agentapp.provenance import spelling
from agentapp.provenance.origins import MAX_VALUES, pieces_of
from agentapp.provenance.paths import leaves, path_of
from agentapp.provenance.sources import DEFAULT, STAFF, UNMARKED, Source, Sources, read
from approvals import standing
from approvals.models import Question

ASKED = "What a person asked"
ANEW = "Proposed again after people had asked about it or changed it"


def asked(questions: Iterable[Question]) -> list[Source]:
    """What people asked the agent about a call. What was in the call itself they only repeated."""
    return [
        Source(
            STAFF,
            ASKED,
            tuple(spelling.lines_of(question.text)),
            own=spelling.folded_lines(
                spelling.lines_of(read(question.approval.final_arguments_text or question.approval.arguments_text))
            ),
        )
        for question in questions
    ]


def with_people(
    origins: Sequence[dict[str, Any]], sources: Sources, arguments: Mapping[str, Any], hands: Collection[int] = ()
) -> list[dict[str, Any]]:
    """The origins of a request, each with the people whose words contain its value. Those who influenced the whole come
    last.

    No query unless a value occurs in what people said when they decided about an earlier call.
    """
    said = _said(origins, sources, arguments)
    who = standing.who_said({request for requests in said.values() for request in requests}) if said else {}
    found = []
    for row in origins:
        by = sorted({pk for request in said.get(str(row["path"]), ()) for pk in who.get(request, ())})
        found.append({**row, "by": by} if by else row)
    if hands:
        found.append({"path": "", "origin": STAFF, "source": ANEW, "by": sorted(hands)})
    return found


def _said(
    origins: Iterable[Mapping[str, Any]], sources: Sources, arguments: Mapping[str, Any]
) -> dict[str, set[uuid.UUID]]:
    """For each path, the requests whose answers were the first to name its value."""
    words = [(source.request, Sources([source])) for source in sources.items if source.request is not None]
    if not words:
        return {}
    weak = {str(row["path"]) for row in origins if row["origin"] in (UNMARKED, DEFAULT)}
    found: dict[str, set[uuid.UUID]] = {}
    for count, (parts, value) in enumerate(leaves(dict(arguments))):
        path = path_of(parts)
        if not parts or path in weak:
            continue
        # What is not searched may be anybody's.
        by = {request for request, one in words if count >= MAX_VALUES or _names(one, value)}
        if by:
            found[path] = by
    return found


def _names(one: Sources, value: Any) -> bool:
    """Whether a value, or a piece of it, occurs in a person's words."""
    every = [value, *pieces_of(value)] if isinstance(value, str) else [value]
    for each in every:
        whole = one.find(each)
        if whole is not None:
            return True
        is_name = isinstance(each, str) and spelling.is_identifier(spelling.folded(each))
        if is_name and one.find_split(each) is not None:
            return True
    return False
