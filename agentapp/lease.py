"""Keeping hold of a run while its work takes long."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections

from agentapp import runs
from agentapp.state import RunState

log = logging.getLogger(__name__)


@contextmanager
def kept(state: RunState) -> Iterator[None]:
    """Renew the lease from a thread of its own while the work takes long."""
    done = threading.Event()

    def keep() -> None:
        try:
            while not done.wait(settings.LEASE_SECONDS / 3):
                try:
                    if not runs.renew(state.run.pk, state.token):
                        state.cancellation.tell()
                        return
                    if runs.told_to_stop(state.run.pk):
                        state.cancellation.tell()
                except (DatabaseError, InterfaceError):
                    # One failure is no reason to let go of a run that is well: there is time for another try.
                    log.exception("The lease of %s could not be renewed", state.run.pk)
                    connections.close_all()
        finally:
            connections.close_all()

    keeper = threading.Thread(target=keep, name=f"lease-{state.run.pk}", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()
