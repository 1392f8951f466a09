"""A server on loopback, built from an OpenAPI document: it takes what the document says and answers as it declares.

It reads the document itself, so that it shares nothing with the way the product reads it.
"""

import json
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import jsonschema_rs

DOCUMENTS = Path(__file__).parent / "documents"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCUMENTS / f"{name}.json").read_text())
    return found


@dataclass
class Asked:
    """A request as the server understood it."""

    method: str
    path: str
    template: str
    values: dict[str, Any]
    headers: dict[str, str]
    body: bytes
    problems: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


class Service:
    """`answers` come next, in order: (status, headers, body); then what the document declares."""

    def __init__(self, document: dict[str, Any], address: str = "127.0.0.1", prefix: str = "") -> None:
        self.document, self.prefix = document, prefix
        self.asked: list[Asked] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.gate: threading.Event | None = None
        service = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                service._take(self, self.rfile.read(length))

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = _answer

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((address, 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://{address}:{self.port}{prefix}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = self.read(handler.command, handler.path, headers, body)
        self.asked.append(asked)
        if self.gate is not None:
            self.gate.wait(10)
        if self.answers:
            status, said, content = self.answers.pop(0)
        elif asked.problems:
            status, said = 400, {"Content-Type": "application/json"}
            content = json.dumps({"problems": asked.problems}).encode()
        else:
            status, said, content = self.declared(asked)
        with suppress(ConnectionError):  # the client may have read enough
            handler.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **said}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content if handler.command != "HEAD" else b"")

    def declared(self, asked: Asked, status: str = "") -> tuple[int, dict[str, str], bytes]:
        """What the document declares for a request: the first success, or this status."""
        operation = self.document["paths"][asked.template][asked.method]
        status = status or next(code for code in sorted(operation["responses"]) if code.startswith("2"))
        response = self.resolved(operation["responses"][status])
        kinds = list(response.get("content", {}))
        if not kinds:
            return int(status), {}, b""
        body = {"status": int(status), "of": asked.template, "values": sorted(asked.values)}
        return int(status), {"Content-Type": kinds[0]}, json.dumps(body).encode()

    # --- What a request says -------------------------------------------------------------------

    def read(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Asked:
        url = urlsplit(target)
        path = url.path.removeprefix(self.prefix)
        template, in_path = self._route(method.lower(), path)
        asked = Asked(method.lower(), path, template, {}, headers, body)
        if not template:
            asked.problems.append(f"no operation for {method} {path}")
            return asked
        item = self.document["paths"][template]
        operation = item[asked.method]
        query = parse_qsl(url.query, keep_blank_values=True)
        cookies = {name: morsel.value for name, morsel in SimpleCookie(headers.get("cookie", "")).items()}
        known: set[str] = set()
        parameters = {}
        for one in [*item.get("parameters", []), *operation.get("parameters", [])]:
            one = self.resolved(one)
            parameters[one["in"], one["name"]] = one
        for (where, name), one in parameters.items():
            raw = {
                "path": [in_path[name]] if name in in_path else [],
                "query": [value for key, value in query if key == name],
                "header": [headers[name.lower()]] if name.lower() in headers else [],
                "cookie": [cookies[name]] if name in cookies else [],
            }[where]
            known.add(name)
            if raw:
                schema = self.resolved(one.get("schema", {}))
                asked.values[name] = self._value(schema, raw, one.get("explode", where in ("query", "cookie")))
                self._check(asked, name, one.get("schema", {}), asked.values[name])
            elif one.get("required"):
                asked.problems.append(f"{name} is missing")
        asked.problems += [f"{key} is not known" for key, _ in query if key not in known]
        self._check_body(asked, operation)
        return asked

    def _route(self, method: str, path: str) -> tuple[str, dict[str, str]]:
        templates = sorted(self.document["paths"], key=lambda one: one.count("{"))
        for template in templates:
            if method not in self.document["paths"][template]:
                continue
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
            if match := re.fullmatch(pattern, path):
                return template, {name: unquote(value) for name, value in match.groupdict().items()}
        return "", {}

    def _value(self, schema: dict[str, Any], raw: list[str], explode: bool) -> Any:
        kind = self._kind(schema)
        if kind == "array":
            items = self.resolved(schema.get("items", {}))
            texts = raw if explode else raw[0].split(",")
            return [self._value(items, [text], explode) for text in texts]
        text = raw[0]
        if kind in ("integer", "number", "boolean"):
            try:
                return json.loads(text)
            except ValueError:
                return text
        return text

    def _kind(self, schema: dict[str, Any]) -> str:
        for one in schema.get("oneOf", []) + schema.get("anyOf", []) + schema.get("allOf", []):
            return self._kind(self.resolved(one))
        kind = schema.get("type", "")
        return str(next((k for k in kind if k != "null"), "") if isinstance(kind, list) else kind)

    def _check_body(self, asked: Asked, operation: dict[str, Any]) -> None:
        said = self.resolved(operation.get("requestBody", {}))
        if not asked.body:
            if said.get("required"):
                asked.problems.append("the body is missing")
            return
        media = asked.headers.get("content-type", "").partition(";")[0]
        content = said.get("content", {}).get(media)
        if content is None:
            asked.problems.append(f"a body of {media} is not taken")
        elif media == "application/json":
            self._check(asked, "body", content.get("schema", {}), asked.json)

    def _check(self, asked: Asked, name: str, schema: dict[str, Any], value: Any) -> None:
        # References in a schema point into the document, so include it.
        refers = "$ref" in json.dumps(schema)
        whole = {**schema, "components": self.document.get("components", {})} if refers else schema
        for error in jsonschema_rs.Draft202012Validator(whole).iter_errors(value):
            asked.problems.append(f"{name}: {str(error).splitlines()[0][:200]}")

    def resolved(self, part: Any) -> Any:
        while isinstance(part, dict) and "$ref" in part:
            found: Any = self.document
            for key in part["$ref"].removeprefix("#/").split("/"):
                found = found[key.replace("~1", "/").replace("~0", "~")]
            part = found
        return part
