"""Arguments that the runtime fills in. A model is not told about them, and what it sends for one is discarded."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from django.conf import settings

from approvals import referenced

ENVIRONMENT, SETTING = "env:", "setting:"
# The ledger's signing keys are never available to tools.
_KEPT_FROM_TOOLS = frozenset({"env:LEDGER_SIGNING_KEY", "setting:LEDGER"})


class NotConfigured(RuntimeError):
    """Something a tool needs is missing. The message says where it was looked for: for the log, not the model."""


def _of_environment(name: str) -> str:
    try:
        return referenced.secret(name)
    except referenced.Unreadable as unreadable:
        raise NotConfigured(f"A person must check it: {unreadable}") from None


@dataclass(frozen=True)
class Injected:
    """Where an argument comes from, as in `Annotated[str, Injected("call_id")]`.

    A field of ToolContext by its name, a variable of the worker's environment as `env:NAME`, or one of
    Django's settings as `setting:NAME`. Credentials are read when the call runs, and stored nowhere.
    """

    source: str

    def value(self, context: object) -> Any:
        """The argument's value for this call. Raises ValueError without a call, NotConfigured without a credential."""
        if self.source.startswith(ENVIRONMENT):
            found: Any = _of_environment(self.source.removeprefix(ENVIRONMENT))
        elif self.source.startswith(SETTING):
            found = getattr(settings, self.source.removeprefix(SETTING), None)
        else:
            return self._of_call(context)
        if found is None or found == "":
            raise NotConfigured(f"A tool needs {self.source}, which is not set for this worker.")
        return found

    def _of_call(self, context: object) -> Any:
        value = getattr(context, self.source)
        if self.source == "call_id" and not value:
            raise ValueError("A tool that takes the id of its call must be run for a call that has one.")
        return value


def injected_parameters(function: Callable[..., Any], fields: set[str]) -> dict[str, Injected]:
    """The parameters of a function that the runtime fills in. `fields` are those of the context.

    Raises ValueError for one that asks for something that does not exist.
    """
    found = {}
    for name, annotation in inspect.get_annotations(function, eval_str=True).items():
        marks = get_args(annotation)[1:] if get_origin(annotation) is not None else ()
        mark = next((mark for mark in marks if isinstance(mark, Injected)), None)
        if mark is None or name == "return":
            continue
        if mark.source in _KEPT_FROM_TOOLS:
            raise ValueError(f"The parameter {name!r} asks for {mark.source!r}, which is kept from tools.")
        if not mark.source.startswith((ENVIRONMENT, SETTING)) and mark.source not in fields:
            raise ValueError(f"The parameter {name!r} asks for {mark.source!r}, which a context does not have.")
        found[name] = mark
    return found
