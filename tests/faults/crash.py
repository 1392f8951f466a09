"""Processes that drive one run or decide one request, and die at a named point. Run by test_crash_points.

Each is forked from this process, which has loaded everything and does nothing else: it reads a line of JSON that says
what the next one is to do, and reports how that one ended.
"""

import json
import os
import signal
import sys
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import django
from django.contrib.auth import get_user_model

django.setup()

from agentapp import actions, answering, executor, loop, nudges, runs  # noqa: E402
from approvals import ledger  # noqa: E402
from approvals.models import Approval  # noqa: E402
from tests.faults.world import die_at  # noqa: E402


def after(module: Any, name: str, point: str, times: int = 1) -> None:
    """Die right after the last of this many calls of a function has returned."""
    real: Callable[..., Any] = getattr(module, name)
    left = [times]

    def dying(*args: Any, **kwargs: Any) -> Any:
        value = real(*args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            die_at(point)
        return value

    setattr(module, name, dying)


def before(module: Any, name: str, point: str) -> None:
    """Die right before a function is called."""
    real: Callable[..., Any] = getattr(module, name)

    def dying(*args: Any, **kwargs: Any) -> Any:
        die_at(point)
        return real(*args, **kwargs)

    setattr(module, name, dying)


def arm() -> None:
    before(nudges, "answered", "P0")  # the decision is committed, nobody has been told
    before(executor, "_run_begun", "P1")  # the claim is committed, nothing has been sent
    # P2 and P3 are inside the tool.
    before(executor, "_store", "P4")  # the answer was read and is not stored
    after(executor, "_run_begun", "P5")  # the result is committed, the run has not gone on
    after(loop, "_take_step", "P6")  # the next step is committed
    before(runs, "record_step", "P7")  # the model has answered, nothing is stored
    after(ledger, "_append", "P8", times=2)  # events are written, the transaction is open
    before(answering, "in_words", "P10")  # a question was found, the model has not been asked
    before(answering, "_keep", "P11")  # the model has answered the question, nothing is stored
    after(executor, "_run_begun", "P9", times=2)  # between the second and the third of five calls


def act(what: str, subject: uuid.UUID) -> None:
    if what == "drive":
        loop.drive(subject)
    else:
        approval = Approval.objects.get(pk=subject)
        user = get_user_model().objects.get(username="dana")
        new = actions.NewDecision(uuid.uuid4(), "approve", approval.version, approval.action_digest)
        actions.decide(subject, new, user)


def die(told: dict[str, str]) -> None:
    """In the process that is to die: do it, and exit normally only if the point was not reached."""
    signal.alarm(60)
    log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    os.environ |= {"CRASH_AT": told["point"], "WORLD": told["world"]}
    ended = 1
    try:
        arm()
        act(told["what"], uuid.UUID(told["subject"]))
        ended = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(ended)


if __name__ == "__main__":
    for line in sys.stdin:
        if not (child := os.fork()):
            die(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
