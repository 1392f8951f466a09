"""Code of an installation, named by its dotted path: matchers, choice providers, planners, batchers."""

import logging
import pkgutil
from collections.abc import Callable
from typing import Any

from agentapp.llm.contract import ModelError

log = logging.getLogger(__name__)


def problem(path: object) -> str:
    """What is wrong with a path, as a sentence. Empty: it leads to something callable."""
    if not isinstance(path, str) or "." not in path:
        return f"{path!r} is not a dotted path such as shop.guidance.is_open."
    try:
        found = pkgutil.resolve_name(path)
    except Exception as error:  # a module's own code may fail in any way
        return f"{path} cannot be imported: {error}."
    return "" if callable(found) else f"{path} cannot be called."


def load(path: str, what: str) -> Callable[..., Any]:
    """Raises ModelError, which ends the run: a missing extension must not be ignored."""
    if wrong := problem(path):
        raise ModelError(f"{what}: {wrong}", code="not_configured")
    found: Callable[..., Any] = pkgutil.resolve_name(path)
    return found


def call(path: str, what: str, *arguments: Any) -> Any:
    """Load and call it. Raises ModelError if it fails; the log has the details."""
    return ask(load(path, what), path, what, *arguments)


def ask(function: Callable[..., Any], path: str, what: str, *arguments: Any) -> Any:
    """Call what has already been loaded. Raises ModelError if it fails."""
    try:
        return function(*arguments)
    except Exception as error:
        log.exception("%s: %s failed", what, path)
        raise ModelError(
            f"{what}: {path} failed ({type(error).__name__}); see the worker's log.", code="extension_failed"
        ) from error


def unusable(path: str, what: str, found: str) -> ModelError:
    """The error for code that returned something unusable, which must not be taken for something else."""
    return ModelError(f"{what}: {path} {found}.", code="extension_failed")
