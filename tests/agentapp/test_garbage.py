"""What a process has loaded is excluded from garbage collection before its work begins."""

import os
import subprocess
import sys

import pytest

SERVER = """
import asyncio, gc, sys
from agentapp import asgi
assert "agentapp.console.runs" in sys.modules, "pages are loaded when the first is asked for"
messages = iter(["lifespan.startup", "lifespan.shutdown"])
async def receive(): return {"type": next(messages)}
async def send(message):
    if message["type"] == "lifespan.startup.complete": print(gc.get_freeze_count())
asyncio.run(asgi.application({"type": "lifespan"}, receive, send))
"""
WORKER = """
import gc
import django
django.setup()
from celery.signals import worker_ready
from agentapp.celery import app
app.send_task = lambda *_, **__: None
worker_ready.send(sender=None)
print(gc.get_freeze_count())
"""


@pytest.mark.apart
@pytest.mark.parametrize("process", [SERVER, WORKER])
def test_a_process_that_begins_its_work_spares_what_it_has_loaded(process: str) -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "agentapp.settings"}
    done = subprocess.run([sys.executable, "-c", process], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100_000  # without freezing: none
