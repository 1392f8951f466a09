"""The web server, with a real Celery worker and beat in threads of the same process.

Whatever is cut off when the process ends goes on at the next start: nothing important is kept in the process.
"""

import logging
import os
import signal
import socket
import threading
from typing import Any

import uvicorn
from celery import beat
from django.conf import settings
from django.utils.module_loading import import_string

from agentapp import draining
from agentapp.celery import app

logger = logging.getLogger(__name__)

WEB_CLOSES_WITHIN = 1
WORKER_STOPS_WITHIN = 2.0
CONCURRENCY = 5


class CannotListen(Exception):
    """The address is taken or not ours; the message names it."""


class Worker:
    """A Celery worker and beat in threads. A worker that dies takes the process with it, loudly."""

    def __init__(self, concurrency: int = CONCURRENCY) -> None:
        self.failed = False
        self._stopping = False
        # WorkController installs no signal handlers: those belong to the web server.
        self._controller = app.WorkController(
            pool="threads",
            concurrency=concurrency,
            hostname=f"embedded@{os.getpid()}",
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            quiet=True,
        )
        self._thread = threading.Thread(target=self._run, name="celery-worker", daemon=True)
        # It sleeps for one interval at a time, so it stops within a second.
        self._beat = beat.Service(app, max_interval=1, scheduler_cls=app.conf.beat_scheduler)

    def start(self) -> None:
        self._thread.start()
        threading.Thread(target=self._beat.start, name="celery-beat", daemon=True).start()

    def stop(self, within: float = WORKER_STOPS_WITHIN) -> bool:
        """Take no more work and let running tasks end. False: something is still running after `within` seconds."""
        self._stopping = True
        draining.begun.set()
        self._beat.stop()
        # Stopping waits for running tasks, so it gets a thread that can be left behind.
        stopper = threading.Thread(target=self._controller.stop, name="celery-stop", daemon=True)
        stopper.start()
        stopper.join(within)
        if stopper.is_alive():
            return False
        draining.begun.clear()  # this worker has drained; the process may start another
        return True

    def _run(self) -> None:
        try:
            self._controller.start()
        except Exception:
            logger.exception("The embedded worker has died.")
        if not self._stopping:
            self.failed = True
            os.kill(os.getpid(), signal.SIGTERM)


def listen(host: str, port: int) -> socket.socket:
    """A socket on this address; port 0 takes a free one. Raises CannotListen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CannotListen(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from error
    except OverflowError as error:
        listener.close()
        raise CannotListen(f"Cannot listen on {host}:{port}: a port is a number from 0 to 65535.") from error
    return listener


def address(listener: socket.socket) -> str:
    """The URL at which a browser on this machine reaches a socket."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  (read, not bound)
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def lead_to(listener: socket.socket) -> None:
    """Point the links of this process to where it listens, unless BASE_URL is set."""
    if not settings.BASE_URL_IS_SET:
        settings.BASE_URL = address(listener)


def web_server() -> uvicorn.Server:
    """The web server, not started. Its `run(sockets=[…])` blocks until `should_exit` is set or a signal comes."""
    application: Any = import_string(settings.ASGI_APPLICATION)
    config = uvicorn.Config(
        application,
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=WEB_CLOSES_WITHIN,
    )
    return uvicorn.Server(config)


def run(listener: socket.socket, worker: Worker | None) -> int:
    """Serve until Ctrl-C or SIGTERM, then stop everything within five seconds. Returns the exit code."""
    server = web_server()
    for name in (signal.SIGINT, signal.SIGTERM):
        # Until uvicorn handles signals, this stops it. Afterwards uvicorn raises them again, which by default
        # would end the process before its worker has stopped.
        signal.signal(name, lambda *_: setattr(server, "should_exit", True))
    if worker is not None:
        worker.start()
    server.run(sockets=[listener])
    stopped = worker.stop() if worker is not None else True
    code = 1 if worker is not None and worker.failed else 0
    if not stopped:
        logger.warning("A tool or model call was still running. Its run goes on at the next start.")
        logging.shutdown()
        os._exit(code)  # Python would wait for the call's thread
    return code
