"""A tool that takes its time. Named in TOOL_MODULES by `recovery.py`."""

import time

from agentapp.tools.base import tool

TAKES_SECONDS = 8


@tool(effect="read", trust="trusted_system", owner="Benchmark")
def wait_for_report(name: str) -> str:
    """Wait for a report.

    Args:
        name: Of the report.
    """
    time.sleep(TAKES_SECONDS)
    return f"{name} is there."
