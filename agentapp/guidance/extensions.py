"""Code of an installation, named by its dotted path: matchers, choice providers, planners, batchers."""

import logging
import pkgutil
from collections.abc import Callable
from typing import Any

from agentapp.llm.contract import ModelError

log = logging.getLogger(__name__)


def problem(path: object) -> str:
    """What is wrong with a path, as a sentence; empty when it leads to something that can be called."""
    if not isinstance(path, str) or "." not in path:
        return f"{path!r} is no dotted path, as in shop.guidance.is_open."
    try:
        found = pkgutil.resolve_name(path)
    except Exception as error:  # a module's own code may fail in any way
        return f"{path} cannot be imported: {error}."
    return "" if callable(found) else f"{path} cannot be called."


def load(path: str, what: str) -> Callable[..., Any]:
    """Raises ModelError, which ends the run: what is missing must not be passed over."""
    if wrong := problem(path):
        raise ModelError(f"{what}: {wrong}", code="not_configured")
    found: Callable[..., Any] = pkgutil.resolve_name(path)
    return found


def call(path: str, what: str, *arguments: Any) -> Any:
    """Call it. Raises ModelError when it fails; the log has how."""
    return ask(load(path, what), path, what, *arguments)


def ask(function: Callable[..., Any], path: str, what: str, *arguments: Any) -> Any:
    """Call what has been loaded already. Raises ModelError when it fails."""
    try:
        return function(*arguments)
    except Exception as error:
        log.exception("%s: %s failed", what, path)
        raise ModelError(
            f"{what}: {path} failed ({type(error).__name__}); the log of the worker has it.", code="extension_failed"
        ) from error


def unusable(path: str, what: str, found: str) -> ModelError:
    """The error of code that gave what cannot be used: it must not be taken for something else."""
    return ModelError(f"{what}: {path} {found}.", code="extension_failed")
