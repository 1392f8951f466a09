"""Everything recorded has words: the test walks the source for event types, and each must belong to a deed."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from agentapp.audit import vocabulary
from agentapp.models import Run
from agentapp.templatetags.console import status_glyph
from approvals.models import Approval, Event
from tests.rows import a_request, take

TYPE = re.compile(r"[a-z_]+\.[a-z_]+")
# Calls that write an event, by the last part of their name, and the prefix for a name without a dot.
RECORDS = {"record": "tool_call.", "_record": "", "record_subagent": "subagent.", "Note": ""}
BEFORE = {
    "approvals/": "approval.",
    "agentapp/disclosing.py": "approval.",
    "agentapp/breakers.py": "breaker.",
    "agentapp/attempts.py": "tool_call.",
    "agentapp/tools/outbound.py": "",
    "agentapp/drivers/": "step.",
    "agentapp/llm/": "step.",
    "agentapp/messages.py": "step.",
    "agentapp/guidance/": "step.",
}
# Types composed when they are recorded: every possible result.
FAMILIES = {
    "run.": Run.FINAL,
    "approval.": ("changed", *Approval.DECIDED, "claimed", "released", "handed_over", "reminded", "escalated"),
    "tool_call.": (),
    "subagent.": (),
    "breaker.": ("opened", "half_open", "closed", "reset"),
    "decision.": ("extraction_failed", "validation_failed"),
    "step.": (),
    "erasure.": ("asked", "done"),
}
NOT_RECORDED = {"guidance_rows", "match"}
# The name that a webhook's trial has at its receiver, and the name of a file.
NO_EVENTS = {"webhook.test", "witness.json"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for part in ("agentapp", "approvals"):
        for path in sorted((settings.BASE_DIR / part).rglob("*.py")):
            if "migrations" not in path.parts:
                yield str(path.relative_to(settings.BASE_DIR)), ast.parse(path.read_text())


@functools.cache
def constants() -> dict[str, str]:
    """Constants at the top of a module that look like a type."""
    found: dict[str, str] = {}
    for _, tree in sources():
        for node in tree.body:
            if not isinstance(node, ast.Assign):
                continue
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for target, value in zip(targets, values, strict=False):
                if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and _is_type(value.value):
                    found[target.id] = value.value
    return found


@functools.cache
def recorded() -> tuple[set[str], set[str]]:
    """Every type that a call in the source names, and the beginnings of those composed there."""
    names, types, begun = constants(), set(), set()
    for path, tree in sources():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and _records(node)]
            for call in calls:
                for argument in call.args[:3]:
                    for node in ast.walk(argument):
                        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                            begun |= {str(node.values[0].value)} if _is_begun(node.values[0].value) else set()
                        elif isinstance(node, ast.Name | ast.Attribute):
                            types |= {names[n] for n in [getattr(node, "id", getattr(node, "attr", ""))] if n in names}
                types |= set(_plain(path, call))
            if calls:
                types |= {
                    node.value
                    for part in ast.walk(function)
                    if isinstance(part, ast.IfExp)
                    for node in (part.body, part.orelse)
                    if isinstance(node, ast.Constant) and _is_type(node.value)
                }
    # Some are chosen by constant name before they are recorded.
    subjects = {type.partition(".")[0] for type in types}
    chosen = {type for type in names.values() if type.partition(".")[0] in subjects}
    return (types | chosen) - NO_EVENTS, begun


def _records(call: ast.Call) -> bool:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    return name in RECORDS and getattr(getattr(call.func, "value", None), "id", "") not in NOT_RECORDED


def _plain(path: str, call: ast.Call) -> Iterator[str]:
    """The types that a call names in full, or by their last part."""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    for argument in call.args[:3]:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            continue
        if argument.value == "signout" or TYPE.fullmatch(argument.value):
            yield argument.value
        elif re.fullmatch(r"[a-z_]+", argument.value):
            before = next((words for begin, words in BEFORE.items() if path.startswith(begin)), RECORDS[name])
            yield f"{before}{argument.value}"
            return


def _is_type(value: object) -> bool:
    return isinstance(value, str) and TYPE.fullmatch(value) is not None


def _is_begun(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[a-z_]+\.", value) is not None


def test_every_type_that_is_recorded_has_words() -> None:
    types, begun = recorded()

    assert begun <= FAMILIES.keys(), "a type is put together here: say in FAMILIES what can come of it"
    types |= {f"{begin}{end}" for begin, ends in FAMILIES.items() for end in ends}
    unknown = {type for type in types if not vocabulary.is_known(type)}
    assert unknown == set(), "give each a deed in agentapp/audit/vocabulary.py"


def test_the_walk_sees_types_however_they_are_recorded() -> None:
    types, begun = recorded()

    assert {
        "token.issued", "user.password_changed", "signin.factor_added", "tool_call.proposed", "tool_call.undo_asked",
        "approval.claimed", "conversation.person_wrote", "subagent.spawned", "step.decided", "signout",
        "outbound.refused", "step.hooks_ran", "breaker.opened",
    } <= types  # fmt: skip
    assert {"run.", "tool_call.", "breaker."} <= begun
    assert len(types) > 60


def test_every_deed_is_recorded_somewhere() -> None:
    text = "\n".join(path.read_text() for part in ("agentapp", "approvals") for path in _outside_of_the_trail(part))
    last = {type.rpartition(".")[2] for deed in vocabulary.DEEDS for type in deed.types}

    made = {"succeeded", "stopped", *FAMILIES["decision."]}  # composed where they are recorded
    assert {word for word in last if not re.search(rf"[\".]{word}\b", text)} - made == set()


def _outside_of_the_trail(part: str) -> Iterator[Path]:
    return (path for path in (settings.BASE_DIR / part).rglob("*.py") if path.name != "vocabulary.py")


def test_no_two_deeds_claim_the_same_event() -> None:
    for deed in vocabulary.DEEDS:
        others = [other for other in vocabulary.DEEDS if other is not deed and set(other.types) & set(deed.types)]
        assert all(other.says != deed.says or other.silent_on != deed.silent_on for other in others), deed.word
    assert not vocabulary.BY_WORD.keys() & vocabulary.GROUPS.keys()
    assert all(name in vocabulary.BY_WORD for names in vocabulary.GROUPS.values() for name in names)


def test_an_event_that_is_not_known_yet_is_named_after_its_type() -> None:
    assert vocabulary.deed_of("moon.was_full", "{}").said == "Moon was full"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("type", "changes", "word"),
    [("approve", {}, "approved"), ("edit", {"arguments": {"order": "1001", "amount": 1}}, "changed"),
     ("reject", {}, "rejected"), ("respond", {}, "responded")],
)  # fmt: skip
def test_what_a_person_decided_is_told_apart_by_the_text_of_the_event(
    dana: User, type: str, changes: dict[str, Any], word: str
) -> None:
    approval = take(a_request(), dana, type, **changes)

    event = _last(approval)
    assert vocabulary.deed_of(event.type, event.body).word == word


@pytest.mark.django_db
def test_words_inside_of_a_message_make_no_other_deed(dana: User) -> None:
    approval = take(a_request(), dana, "reject", message='"type":"approve","status":"ok"')

    event = _last(approval)
    assert vocabulary.deed_of(event.type, event.body).word == "rejected"


def _last(approval: Approval) -> Event:
    return Event.objects.filter(type__startswith="approval.").exclude(type="approval.requested").latest("seq")


def test_a_row_says_how_much_was_changed_and_what_was_configured() -> None:
    changed, rule = vocabulary.BY_WORD["changed"], vocabulary.BY_WORD["changed-rule"]

    assert vocabulary.said(changed, "approval.approved", {}, 1) == "Approved with 1 change"
    assert vocabulary.said(changed, "approval.approved", {}, 2) == "Approved with 2 changes"
    assert vocabulary.said(rule, "configuration.created", {}) == "Added policy"
    configured = vocabulary.BY_WORD["configured"]
    table = {"table": "agentapp.ContextVariable"}
    assert vocabulary.said(configured, "configuration.changed", table) == "Changed context variable"


def test_nothing_that_is_over_turns() -> None:
    assert all("spin" not in status_glyph(deed.glyph) for deed in vocabulary.DEEDS)
    assert "spin" in status_glyph("running")
