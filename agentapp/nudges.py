"""Tells workers what may be due, by task name, so that any code that moves a run or learns of a change can do it."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from agentapp import worker_queues
from approvals import broker
from approvals.database import AWAY

DRIVE_RUN = "agentapp.tasks.drive_run"
MAIL_ACCOUNT_CHANGE = "agentapp.tasks.mail_account_change"
VERIFY_LEDGER = "agentapp.tasks.verify_ledger"


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Tell no worker about the runs that are moved meanwhile: the code that moves them also drives them."""
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


def nudge(run_id: uuid.UUID, delay: float = 0) -> None:
    """Tell a worker that a run may be due. Never raises: the sweep finds the run if a nudge is lost."""
    _nudge(run_id, delay, broker.WORK)


def answered(run_id: uuid.UUID, delay: float = 0) -> None:
    """Like `nudge`, for a run that a person has just answered: it goes ahead of all other runs waiting for a worker."""
    _nudge(run_id, delay, broker.ANSWERED)


def _nudge(run_id: uuid.UUID, delay: float, priority: int) -> None:
    if not _quiet.get():
        about = f"about run {run_id}; the sweep will find it"
        broker.tell(DRIVE_RUN, (str(run_id),), about=about, delay=delay, priority=priority, queue=_queue(run_id))


def _queue(run_id: uuid.UUID) -> str:
    try:
        return worker_queues.of_run(run_id)
    except AWAY:
        return worker_queues.USUAL  # the worker that gets it passes it on


def account_changed(user_id: int, event: str, detail: str, moment: str) -> None:
    """Tell a worker to mail a person that their account has changed. Never raises: the ledger has it anyway."""
    broker.tell(
        MAIL_ACCOUNT_CHANGE, (user_id, event, detail, moment), about=f"to mail user {user_id} about their account"
    )


def check_ledger(verification_id: uuid.UUID) -> None:
    """Tell a worker that somebody wants the ledger checked. Never raises: workers look for this every minute anyway."""
    broker.tell(
        VERIFY_LEDGER,
        (str(verification_id),),
        about="to check the ledger; the next look for it will",
        priority=broker.WORK,
    )
