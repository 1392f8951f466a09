"""Celery tasks: claim, call, return. A message is only a nudge; losing or duplicating one changes nothing."""

import logging
import uuid
from collections.abc import Callable
from functools import partial

from celery import Task, shared_task
from django.conf import settings

from agentapp import (
    account_changes,
    anchoring,
    draining,
    insights,
    logs,
    loop,
    old_sessions,
    password_reset,
    webhooks,
    worker_queues,
)
from agentapp import sweep as sweeping
from agentapp.evals import results, runner
from agentapp.nudges import nudge
from approvals import broker, clock, outgoing
from approvals.database import AWAY
from approvals.proof import anchors, checkpoints, verifying

__all__ = [
    "drive_run", "forget_sessions", "forget_webhooks", "look_after_ledger", "mail_account_change", "mail_reset_links",
    "nudge", "nudge_eval", "roll_up", "run_eval", "send_to_endpoint", "send_webhooks", "sweep", "verify_ledger",
]  # fmt: skip

logger = logging.getLogger(__name__)

# Mail about accounts is separate: it does not wait for what is sent about requests.
ACCOUNTS = "accounts"
SWEEP_AGAIN_SECONDS = 1
MAIL_AGAIN_SECONDS = 5
# Processes that do not agree about the queues pass a message to and fro, at this pace.
PASSED_ON_SECONDS = 1
MAIL_TRIES = 60


@shared_task(bind=True)
def drive_run(task: "Task[[str], None]", run_id: str) -> None:
    if draining.begun.is_set():
        nudge(uuid.UUID(run_id))  # it was waiting for a thread here, and another worker has one free
        return
    if _is_for_others(task, uuid.UUID(run_id)):
        nudge(uuid.UUID(run_id), PASSED_ON_SECONDS)
        return
    with logs.bound(run=run_id):
        again = loop.drive(uuid.UUID(run_id))
    if again is not None:
        nudge(uuid.UUID(run_id), again.delay)


def _is_for_others(task: "Task[[str], None]", run_id: uuid.UUID) -> bool:
    """Whether this message came through a queue that is not the run's, for example from before its agent got one."""
    came_through = (task.request.delivery_info or {}).get("routing_key")
    if not settings.AGENT_QUEUES or came_through is None:
        return False
    return bool(came_through != broker.name_of(worker_queues.of_run(run_id)))


@shared_task(bind=True, max_retries=settings.SWEEP_SECONDS // 2)
def sweep(task: "Task[[], None]") -> None:
    """Once, however often it is sent. Is tried again until the next is sent if the database is away."""
    try:
        _sweep()
    except AWAY as away:
        raise task.retry(exc=away, countdown=SWEEP_AGAIN_SECONDS) from away


def _sweep() -> None:
    if not sweeping.is_due():
        return  # many may have piled up while workers were away; one of them sweeps, and nudges each run once
    many_wait = broker.waiting() >= sweeping.MANY_WAIT
    for run_id in sweeping.sweep(many_wait):
        nudge(run_id)
    if not many_wait:
        for eval_run_id in results.due():
            nudge_eval(eval_run_id)


@shared_task
def run_eval(eval_run_id: str) -> None:
    """One slice of an eval; a new message starts the next. The sweep finds lost ones."""
    if runner.go_on(uuid.UUID(eval_run_id)):
        nudge_eval(uuid.UUID(eval_run_id))


def nudge_eval(eval_run_id: uuid.UUID) -> None:
    """Tell a worker that an eval should go on. Never raises: the sweep finds the eval if a nudge is lost."""
    broker.tell(
        run_eval, (str(eval_run_id),), about=f"about eval {eval_run_id}; the sweep will find it", priority=broker.WORK
    )


@shared_task(bind=True, max_retries=MAIL_TRIES)
def mail_reset_links(self: "Task[..., None]", address: str, asking: dict[str, str]) -> None:
    """If this is lost, nothing repeats it: the page says to ask again."""
    mail = partial(password_reset.mail_links, address, password_reset.Asking(**asking))
    if not _mailed_in_turn(self, mail):
        password_reset.give_up(address)


@shared_task(bind=True, max_retries=MAIL_TRIES)
def mail_account_change(self: "Task[..., None]", user_id: int, event: str, detail: str, moment: str) -> None:
    _mailed_in_turn(self, partial(account_changes.mail_change, user_id, event, detail, moment))


def _mailed_in_turn(task: "Task[..., None]", mail: Callable[[], None]) -> bool:
    """Only one thread of a worker mails about accounts, as anybody can ask for a new password. The others do the work.

    A task without a turn comes back for some minutes. False: it got no turn in all that time.
    """
    with outgoing.turn(ACCOUNTS, apart=True) as mine:
        if mine:
            mail()
            return True
    if task.request.retries < MAIL_TRIES:
        raise task.retry(countdown=MAIL_AGAIN_SECONDS)
    # Celery's own message would quote the address.
    logger.warning("A mail about an account was given up, because others were being mailed all the time.")
    return False


@shared_task
def send_webhooks() -> None:
    """Send what happened to every endpoint that wants it, each in its own task."""
    webhooks.collect()
    webhooks.give_up()
    for endpoint_id in webhooks.due_endpoints():
        send_to_endpoint.delay(str(endpoint_id))


@shared_task
def send_to_endpoint(endpoint_id: str) -> None:
    webhooks.send_due(uuid.UUID(endpoint_id))


@shared_task
def forget_webhooks() -> None:
    webhooks.forget_old()


@shared_task
def forget_sessions() -> None:
    old_sessions.forget()


@shared_task
def look_after_ledger() -> None:
    """Sign what is due, record it outside, and verify the ledger. Each part finds out by itself what is due."""
    clock.asked()  # what is signed bears the database's time, whatever this worker's clock says
    checkpoints.make_due()
    anchors.write_file()
    anchoring.send_due()
    for verification_id in verifying.due():
        verify_ledger.delay(str(verification_id))


@shared_task
def verify_ledger(verification_id: str) -> None:
    """One slice; a new message starts the next. A lost one is found within a minute."""
    if verifying.go_on(uuid.UUID(verification_id)):
        verify_ledger.delay(verification_id)


@shared_task
def roll_up() -> None:
    """Figures for completed hours. If a pass is lost, the next one makes up for it."""
    insights.catch_up()
