"""As much of Slack's API as the product uses: a server on loopback that keeps its messages and what it was sent."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from approvals.channels.slack import SlackChannel

TOKEN = "xoxb-hunter5"
type Answer = tuple[int, dict[str, str], Any]


@dataclass
class Slack:
    """`answers` come next, in order: (status, headers, body); then Slack's own."""

    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    messages: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    def answer(self, method: str, content: dict[str, Any]) -> Answer:
        self.asked.append((method, content))
        if self.answers:
            return self.answers.pop(0)
        if method == "chat.postMessage":
            # A direct conversation has an id of its own.
            key = (re.sub("^U", "D", content["channel"]), f"1700000000.{len(self.messages):06}")
        else:
            key = (content["channel"], content["ts"])
            if key not in self.messages:
                return 200, {}, {"ok": False, "error": "message_not_found"}
        self.messages[key] = content
        return 200, {}, {"ok": True, "channel": key[0], "ts": key[1]}

    def texts(self) -> list[str]:
        """What people read of each message: struck text as in ~this~, and its button."""
        return [_read(message) for message in self.messages.values()]


def _read(message: dict[str, Any]) -> str:
    rich, actions = message["blocks"]
    [section] = rich["elements"]
    pieces = [(piece["text"], piece.get("style", {}).get("strike")) for piece in section["elements"]]
    words = "".join(f"~{text}~" if struck else text for text, struck in pieces)
    return f"{words} [{', '.join(button['text']['text'] for button in actions['elements'])}]"


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slack]:
    there = Slack()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            there.tokens.append(self.headers["Authorization"])
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, said = there.answer(self.path.rpartition("/")[2], content)
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(SlackChannel, "api", f"http://127.0.0.1:{server.server_address[1]}/api")
    monkeypatch.setenv("CREDENTIAL_SLACK", TOKEN)
    try:
        yield there
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
