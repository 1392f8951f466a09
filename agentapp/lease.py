"""Keeps hold of runs while their work takes long."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db import connection, connections, transaction

from agentapp import runs
from agentapp.own_connection import Line, outside_of_pool
from agentapp.state import RunState
from approvals.database import AWAY

log = logging.getLogger(__name__)


@contextmanager
def kept(state: RunState) -> Iterator[None]:
    """Renew the lease from another thread while the work takes long."""
    keeper = _keeper
    keeper.hold(state)
    try:
        yield
    finally:
        keeper.let_go(state)


@dataclass
class _Lease:
    state: RunState
    due: float
    """When to renew it, by the monotonic clock."""


class _Keeper:
    """One thread renews the leases of all runs that this process drives. It ends when nothing is left to renew.

    Its connection is not from the pool: while work waits for the pool, its leases must not run out.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[object, _Lease] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0
        self._has_renewed = False

    def hold(self, state: RunState) -> None:
        lease = _Lease(state, time.monotonic() + settings.LEASE_SECONDS / 3)
        with self._changed:
            self._held[state.token] = lease
            if self._thread is None:
                self._wakes_at = lease.due
                self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)
                self._thread.start()
            elif lease.due < self._wakes_at:
                self._changed.notify()

    def let_go(self, state: RunState) -> None:
        with self._changed:
            self._held.pop(state.token, None)
            if not self._held and self._has_renewed:
                self._changed.notify()  # so that it gives up its connection

    def _keep(self) -> None:
        with outside_of_pool(Line()):
            while due := self._wait():
                for lease in due:
                    self._renew(lease)

    def _wait(self) -> list[_Lease]:
        """The leases to renew now, once there are any. With no leases at all, the thread ends."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = [lease for lease in self._held.values() if lease.due <= now]
                if due:
                    self._has_renewed = True
                    return due
                # If runs are short, the next one finds the thread still there.
                if not self._held and (self._has_renewed or now >= self._wakes_at):
                    self._thread, self._has_renewed = None, False
                    return []
                self._wakes_at = min((lease.due for lease in self._held.values()), default=self._wakes_at)
                self._changed.wait(self._wakes_at - now)

    def _renew(self, lease: _Lease) -> None:
        state = lease.state
        try:
            with _not_waiting_long():
                is_held = runs.renew(state.run.pk, state.token)
                told = not is_held or runs.told_to_stop(state.run.pk)
        except Exception as error:
            # One failure is no reason to release a healthy run: there is time for another try, every second or so.
            known = isinstance(error, AWAY)
            log.error("The lease of %s could not be renewed: %s", state.run.pk, error, exc_info=not known)
            connections.close_all()
            lease.due = time.monotonic() + settings.LEASE_SECONDS / 12
            return
        lease.due = time.monotonic() + settings.LEASE_SECONDS / 3
        if told:
            state.cancellation.tell()
        if not is_held:
            self.let_go(state)


@contextmanager
def _not_waiting_long() -> Iterator[None]:
    """If a vanished client holds the lock on one run's row, the leases of all other runs must not run out."""
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{settings.LEASE_SECONDS * 1000 // 12}"])
        yield


_keeper = _Keeper()


def _begin_anew() -> None:
    """A forked process has neither its parent's runs nor its thread."""
    global _keeper
    _keeper = _Keeper()


os.register_at_fork(after_in_child=_begin_anew)
