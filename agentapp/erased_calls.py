"""A call without its words: what is left when a person, or retention, has them erased."""

from collections.abc import Iterable

from agentapp.models import ToolExecution
from approvals.clock import Now
from approvals.sealed import ERASED, GONE

_TO_NOTHING = ("proposed_text", "result_text", "artifact_text", "raw_result_text", "arguments_digest", "evidence_ref")
_TO_A_MARK = ("message", "outcome_note")
ERASED_FIELDS = [
    "arguments_text", "executed_text", "salt", "metadata", "control", "comparison", "failures", "ruling", "erased_at",
    *_TO_NOTHING, *_TO_A_MARK,
]  # fmt: skip
# Whether it acted matters as long as its key does.
_KEPT = frozenset({"took_effect"})
# What rules looked at.
_SEEN = frozenset({"values", "about"})


def erase_words(calls: Iterable[ToolExecution]) -> None:
    """Erase the words, without saving: `executions` saves."""
    for call in calls:
        for name in _TO_NOTHING:
            setattr(call, name, "")
        for name in _TO_A_MARK:
            setattr(call, name, ERASED if getattr(call, name) else "")
        call.arguments_text, call.executed_text = "{}", "{}" if call.executed_text else ""
        call.metadata, call.comparison, call.failures = {}, None, []
        call.control = {name: value for name, value in call.control.items() if name in _KEPT}
        call.ruling = call.ruling | {name: type(call.ruling[name])() for name in _SEEN & call.ruling.keys()}
        call.salt, call.erased_at = GONE, Now()
