"""How many runs one worker moves while their models think, and what a run costs in time and memory.

    DEBUG=true DATABASE_URL=postgres://… REDIS_URL=redis://… python benchmarks/runs_in_flight.py [--runs 128]

Makes a throw-away database, starts one worker with 32 threads and a provider on the loopback that takes a second for
every reply, and lets each agent take three steps. With no overhead, 128 runs of three seconds each would take 12
seconds on 32 threads: anything above that is ours.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")
os.environ.setdefault("DEBUG", "true")

THREADS = 32
THINKING_SECONDS = 1.0


class Provider(BaseHTTPRequestHandler):
    """Calls look_up twice, then answers; OpenAI's chat completions."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(THINKING_SECONDS)
        answered = sum(message["role"] == "tool" for message in asked["messages"])
        message = {"role": "assistant", "content": "Done."}
        if answered < 2:
            function = {"name": "get_order", "arguments": json.dumps({"order_id": "58213"})}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call_{answered}", "type": "function", "function": function}],
            }
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        body = json.dumps(
            {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=128)
    count = arguments.parse_args().runs
    server = Server(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY": "none"}
    django.setup()
    from django.conf import settings

    from agentapp import actions
    from agentapp.demo import check, opening
    from agentapp.models import Agent, Run

    if settings.EMBEDDED:
        sys.exit("Set DATABASE_URL and REDIS_URL: the embedded worker has four threads.")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="countersign-benchmark-")))
        stack.enter_context(check.throw_away_database(folder))
        people = opening.open_shop(model="openai:m")
        Agent.objects.update(max_cost=None, streams=False)  # the provider answers in one piece
        stack.enter_context(check.own_queue())
        environment = {
            **os.environ,
            "DATABASE_URL": check.database_url(),
            "QUEUE_NAME": settings.CELERY_TASK_DEFAULT_QUEUE,
            "PYTHONPATH": str(settings.BASE_DIR),
        }
        command = ["-m", "celery", "-A", "agentapp", "worker", "-P", "threads", "-c", str(THREADS), "-l", "ERROR"]
        worker = subprocess.Popen([sys.executable, *command], env=environment, cwd=folder)  # noqa: S603
        try:
            warm = actions.start_run(actions.NewRun("support", "Warm up."), people["sam"])
            while not warm.is_final:
                time.sleep(0.05)
                warm.refresh_from_db()
            if warm.state != Run.State.SUCCEEDED:
                sys.exit(f"The first run is {warm.state}. {warm.stop_message}")
            resting = memory(worker.pid)
            began = time.monotonic()
            for number in range(count):
                actions.start_run(actions.NewRun("support", f"Order 58213, question {number}."), people["sam"])
            queued = time.monotonic() - began
            most = resting
            while Run.objects.exclude(state__in=Run.FINAL).exists():
                most = max(most, memory(worker.pid))
                time.sleep(0.1)
            took = time.monotonic() - began
            ended = dict.fromkeys(Run.objects.values_list("state", flat=True))
        finally:
            worker.terminate()
            worker.wait(20)
    ideal = -(-count // THREADS) * 3 * THINKING_SECONDS
    print(f"{count} runs of 3 steps in {took:.1f} s (thinking alone: {ideal:.1f} s), queued in {queued:.1f} s.")
    print(f"They ended as {', '.join(ended)}. Worker: {resting} MiB at rest, {most} MiB at most.")


def memory(pid: int) -> int:
    """Resident memory of a process, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


if __name__ == "__main__":
    main()
