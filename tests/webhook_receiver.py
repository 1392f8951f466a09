"""A program elsewhere that is told what happens: a server on loopback that keeps what it was sent."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """`answers` come next, in order: (status, headers, body); then 204."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.gate: threading.Event | None = None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.received.append(Received(handler.path, headers, body))
        if self.gate is not None:
            self.gate.wait(30)
        status, said, content = self.answers.pop(0) if self.answers else (204, {}, b"")
        with suppress(ConnectionError):
            handler.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **said}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)
