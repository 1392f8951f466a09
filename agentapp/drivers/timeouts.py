"""How long a model may take for one whole reply."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from agentapp.llm.settings import MAX_TIMEOUT


def timeout_of(model_settings: Mapping[str, Any]) -> float:
    """The agent's own limit in seconds if it is valid, else the installation's."""
    seconds: Any = model_settings.get("timeout")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_TIMEOUT:
        return settings.MODEL_TIMEOUT_SECONDS
    return float(seconds)
