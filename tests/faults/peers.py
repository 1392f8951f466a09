"""A model's provider and a service with tools, on one address, that fail in the way they are asked to.

The content of a request decides how it is answered, so that many can be tried at once: one that names `hang` is never
answered, and so on; one that names `echo` is told, as an error, the headers it came with. Every request is kept, since
what it asks for has happened, however it is answered.
"""

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ECHO = "echo"
WRONGS = ("hang", "trickle", "cut", "garbage", "nonsense", "error", "huge")
HUGE = b"x" * 9_000_000
ITEM = {"name": "item", "in": "query", "required": True, "schema": {"type": "string"}}
ANSWERS = {"responses": {"200": {"description": "Done.", "content": {"application/json": {"schema": {}}}}}}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "A bank", "version": "1"},
    "paths": {
        "/balance": {"get": {"operationId": "read_balance", "summary": "Read it", "parameters": [ITEM], **ANSWERS}},
        "/transfers": {"post": {"operationId": "transfer", "summary": "Transfer", "parameters": [ITEM], **ANSWERS}},
    },
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class Peer:
    """`stream` is what a model says if nothing goes wrong, in its provider's events."""

    def __init__(self, stream: Iterable[bytes]) -> None:
        self.asked: list[str] = []
        self.headers: list[str] = []
        self._closing = threading.Event()
        model = ("text/event-stream", b"".join(stream))
        peer, tool = self, ("application/json", b'{"done": true}')

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                asked = f"{self.command} {self.path} {body}"
                peer.asked.append(asked)
                peer.headers.append(str(self.headers))
                wrong = next((each for each in (*WRONGS, ECHO) if f"please-{each}" in asked), "")
                self.close_connection = True
                with suppress(OSError):  # the client may have read enough
                    self._answer(wrong, *(model if "/chat/" in self.path else tool))

            do_GET = do_POST

            def _answer(self, wrong: str, kind: str, content: bytes) -> None:
                if wrong == "hang":
                    peer._closing.wait(60)
                    return
                if wrong == "garbage":
                    self.wfile.write(b"\x00\xff" * 400 + b"\r\n\r\n")
                    return
                if wrong == ECHO:
                    kind, content = "application/json", json.dumps({"error": {"message": str(self.headers)}}).encode()
                content = b"<html>{]" if wrong == "nonsense" else content
                if wrong == "huge":  # in the first text of the answer, or in another field
                    said = b'"content": "' if b'"content": "' in content else b'{"'
                    content = content.replace(said, said + HUGE, 1)
                self.send_response({"error": 500, ECHO: 401}.get(wrong, 200))
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content) + 1000 * (wrong == "trickle")))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if wrong in ("cut", "trickle") else content)
                self.wfile.flush()
                while wrong == "trickle" and not peer._closing.wait(0.2):
                    self.wfile.write(b" ")
                    self.wfile.flush()

            def log_message(self, *_: Any) -> None:
                pass

        self._http = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def times_asked(self, what: str, wrong: str) -> int:
        return sum(what in asked and f"please-{wrong}" in asked for asked in self.asked)

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
