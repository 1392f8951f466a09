"""What tests of breakers, switches and keys share: a clerk with tools that fail and stop when told to."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agentapp.models import Breaker
from approvals.models import Event
from tests import stopping_tools
from tests.conftest import Clerk, call, calls, install_tools, says


@pytest.fixture
def desk(clerk: Clerk, settings: Any) -> Clerk:
    """The clerk, with the tools of `stopping_tools` as well."""
    stopping_tools.forget()
    settings.TOOL_MODULES = ["tests.clerk_tools", "tests.stopping_tools"]
    clerk.agent.tools.add(*install_tools("tests.stopping_tools").values())
    return clerk


def fail_times(desk: Clerk, times: int, tool: str = "ask") -> None:
    """Make a tool fail in this many runs, and then work again."""
    stopping_tools.BROKEN[tool] = stopping_tools.failing()
    for number in range(times):
        desk.run(calls(call("a", tool, about=str(number))), says("done"))
    stopping_tools.BROKEN.clear()


def cool(**which: Any) -> None:
    """Let the time pass in which open breakers let nothing through and a probe may still be running."""
    past = timezone.now() - timedelta(hours=1)
    Breaker.objects.filter(**which).update(opened_at=past)
    Breaker.objects.filter(**which, state="half_open").update(probe_until=past)


def configured() -> list[str]:
    """The types of the events about stopped things, in order."""
    chain = Event.objects.filter(chain="configuration").order_by("seq").values_list("type", flat=True)
    return [type_ for type_ in chain if type_.startswith(("breaker.", "switch."))]
