"""A provider on the loopback interface: it records what it is asked and answers as it is told.

It speaks three real dialects: OpenAI's chat completions, Anthropic's messages and Google's generateContent. Nothing of
the product is replaced.
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import pytest

KEY = "sk-test-7b1f9d2c4e6a8051"


@dataclass(frozen=True)
class Question:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One response. `ending` says how the body leaves: whole, cut in the middle, byte by byte, or never."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ending: Literal["whole", "cut", "drip", "never"] = "whole"
    events: tuple[Any, ...] = ()
    """The parts of a streamed reply, each sent separately. An `Event` among them is waited for; None cuts the line, and
    the rest never comes."""

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class _Server(ThreadingHTTPServer):
    # Python's default of 5 drops connections when sixteen threads ask at once, and the retries come too late.
    request_queue_size = 128
    daemon_threads = True


class ProviderServer:
    """Answers in the order of `answers`, or by `answer_with` when that is set."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.answers: deque[Answer] = deque()
        self.answer_with: Callable[[Question], Answer] | None = None
        self.closing = threading.Event()
        self._http = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def answer(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    def stop(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body leave in two pieces; the second must not wait for the first to be acknowledged.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                question = Question(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                server.questions.append(question)
                answer = server.answer_with(question) if server.answer_with else server.answers.popleft()
                self.respond(_as_asked(question, answer))

            def respond(self, answer: Answer) -> None:
                if answer.ending == "never":
                    server.closing.wait(60)
                    self.close_connection = True
                    return
                if answer.events:
                    self.stream(answer)
                    return
                self.send_response(answer.status)
                headers = {"Content-Type": "application/json", "Content-Length": str(len(answer.content))}
                for name, value in (headers | answer.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                if answer.ending == "whole":
                    self.wfile.write(answer.content)
                elif answer.ending == "cut":
                    self.wfile.write(answer.content[: len(answer.content) // 2])
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                else:
                    self.drip(answer.content)

            def stream(self, answer: Answer) -> None:
                """Each event as a chunk of its own, as providers send them."""
                self.send_response(answer.status)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for event in answer.events:
                    if event is None:
                        self.connection.shutdown(socket.SHUT_RDWR)
                        self.close_connection = True
                        return
                    if isinstance(event, threading.Event):
                        event.wait(30)
                        continue
                    self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            def drip(self, content: bytes) -> None:
                """Byte by byte, so slowly that the whole never arrives."""
                self.close_connection = True
                for byte in content:
                    if server.closing.wait(0.05):
                        return
                    try:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                    except OSError:
                        return

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet: the tests read `questions`."""

        return Handler


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderServer]:
    """A provider for all three dialects, and an environment that points at it."""
    server = ProviderServer()
    for dialect in DIALECTS.values():
        monkeypatch.setenv(dialect.key_variable, KEY)
        monkeypatch.setenv(dialect.url_variable, server.url + dialect.url_path)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.stop()


@dataclass(frozen=True)
class Sent:
    """What a question says, whatever its dialect."""

    model: str
    instructions: str
    tools: dict[str, dict[str, Any]]
    calls: list[tuple[str, str, Any]]
    """From the assistant's turns: id, name, arguments as an object, decoded if the dialect has text."""
    results: list[tuple[str, str]]
    """Answers to calls: id, text."""
    users: list[str]


class OpenAI:
    model, answering = "openai:gpt-4o-mini", "gpt-4o-mini-2024-07-18"
    key_variable, url_variable, url_path = "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"
    path, key_header = "/v1/chat/completions", "authorization"

    def reply(self, text: str = "", calls: Any = (), model: str = "", tokens: Any = (100, 20, 40)) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
                }
                for call_id, name, given in calls
            ]
        choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
        usage = {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "total_tokens": tokens[0] + tokens[1],
            "prompt_tokens_details": {"cached_tokens": tokens[2]},
        }
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1790000000,
            "model": model or self.answering,
            "choices": [choice],
            "usage": usage,
        }

    def stream(self, *texts: Any, calls: Any = (), tokens: Any = (100, 20, 40)) -> tuple[Any, ...]:
        """The same reply in pieces. Anything that is not text passes unchanged."""
        whole = self.reply("", calls, tokens=tokens)

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return _sse({**whole, "object": "chat.completion.chunk", "choices": [choice], "usage": None})

        asked = [{"index": n, **call} for n, call in enumerate(whole["choices"][0]["message"].get("tool_calls", ()))]
        return (
            chunk({"role": "assistant", "content": ""}),
            *(chunk({"content": text}) if isinstance(text, str) else text for text in texts),
            *(chunk({"tool_calls": [call]}) for call in asked),
            chunk({}, whole["choices"][0]["finish_reason"]),
            _sse({**whole, "object": "chat.completion.chunk", "choices": []}),
            b"data: [DONE]\n\n",
        )

    def error(self, message: str, kind: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": kind, "code": kind, "param": None}}

    def read(self, question: Question) -> Sent:
        messages = question.body["messages"]
        calls = [call for message in messages for call in message.get("tool_calls", [])]
        return Sent(
            model=question.body["model"],
            instructions="\n".join(m["content"] for m in messages if m["role"] in ("system", "developer")),
            tools={t["function"]["name"]: t["function"]["parameters"] for t in question.body.get("tools", [])},
            calls=[(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls],
            results=[(m["tool_call_id"], m["content"]) for m in messages if m["role"] == "tool"],
            users=[m["content"] for m in messages if m["role"] == "user"],
        )

    def parallel(self, question: Question) -> bool:
        return bool(question.body["parallel_tool_calls"])

    def choice(self, question: Question) -> Any:
        return question.body["tool_choice"]


class Anthropic:
    model, answering = "anthropic:claude-sonnet-4-6", "claude-sonnet-4-6"
    key_variable, url_variable, url_path = "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""
    path, key_header = "/v1/messages", "authorization"

    def reply(self, text: str = "", calls: Any = (), model: str = "", tokens: Any = (100, 20, 40)) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool_use", "id": call_id, "name": name, "input": given} for call_id, name, given in calls]
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model or self.answering,
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            # Anthropic counts what it read from its cache separately from the input, not within it.
            "usage": {
                "input_tokens": tokens[0] - tokens[2],
                "output_tokens": tokens[1],
                "cache_read_input_tokens": tokens[2],
                "cache_creation_input_tokens": 0,
            },
        }

    def stream(self, *texts: Any, calls: Any = (), tokens: Any = (100, 20, 40)) -> tuple[Any, ...]:
        """The same reply in pieces. Anything that is not text passes unchanged."""
        whole = self.reply("", calls, tokens=tokens)
        start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}

        def event(kind: str, **data: Any) -> bytes:
            return _sse({"type": kind, **data}, kind)

        def block(index: int, begin: dict[str, Any], *deltas: Any) -> list[Any]:
            inside = [
                d if not isinstance(d, dict) else event("content_block_delta", index=index, delta=d) for d in deltas
            ]
            begun = event("content_block_start", index=index, content_block=begin)
            return [begun, *inside, event("content_block_stop", index=index)]

        said = [{"type": "text_delta", "text": text} if isinstance(text, str) else text for text in texts]
        events = block(0, {"type": "text", "text": ""}, *said) if texts else []
        for n, (call_id, name, given) in enumerate(calls, start=1 if texts else 0):
            begin = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            events += block(n, begin, {"type": "input_json_delta", "partial_json": json.dumps(given)})
        ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        return (
            event("message_start", message=start),
            *events,
            event("message_delta", delta=ending, usage=whole["usage"]),
            event("message_stop"),
        )

    def error(self, message: str, kind: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": kind, "message": message}}

    def read(self, question: Question) -> Sent:
        system = question.body.get("system", "")
        blocks = [
            (message["role"], block)
            for message in question.body["messages"]
            for block in (
                message["content"]
                if isinstance(message["content"], list)
                else [{"type": "text", "text": message["content"]}]
            )
        ]
        return Sent(
            model=question.body["model"],
            instructions=system if isinstance(system, str) else "\n".join(block["text"] for block in system),
            tools={tool["name"]: tool["input_schema"] for tool in question.body.get("tools", [])},
            calls=[(b["id"], b["name"], b["input"]) for _, b in blocks if b["type"] == "tool_use"],
            results=[(b["tool_use_id"], _plain(b["content"])) for _, b in blocks if b["type"] == "tool_result"],
            users=[b["text"] for role, b in blocks if role == "user" and b["type"] == "text"],
        )

    def parallel(self, question: Question) -> bool:
        return not question.body["tool_choice"].get("disable_parallel_tool_use", False)

    def choice(self, question: Question) -> Any:
        return question.body["tool_choice"]["type"]


class Google:
    model, answering = "google:gemini-2.5-flash", "gemini-2.5-flash"
    key_variable, url_variable, url_path = "GOOGLE_API_KEY", "GOOGLE_BASE_URL", ""
    path, key_header = "/v1beta/models/gemini-2.5-flash:generateContent", "x-goog-api-key"
    stream_path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"

    def reply(self, text: str = "", calls: Any = (), model: str = "", tokens: Any = (100, 20, 40)) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": text}] if text else []
        parts += [{"functionCall": {"id": call_id, "name": name, "args": given}} for call_id, name, given in calls]
        return {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": tokens[0],
                "candidatesTokenCount": tokens[1],
                "totalTokenCount": tokens[0] + tokens[1],
                "cachedContentTokenCount": tokens[2],
            },
            "modelVersion": model or self.answering,
            "responseId": "resp-1",
        }

    def stream(self, *texts: Any, calls: Any = (), tokens: Any = (100, 20, 40)) -> tuple[Any, ...]:
        """The same reply in pieces. Anything that is not text passes unchanged."""

        def chunk(text: str, calls: Any = (), **more: Any) -> bytes:
            whole = self.reply(text, calls, tokens=tokens)
            whole["candidates"][0].pop("finishReason")
            whole["candidates"][0] |= more
            return _sse(whole)

        said = tuple(chunk(text) if isinstance(text, str) else text for text in texts)
        return (*said, chunk("", calls, finishReason="STOP"))

    def error(self, message: str, kind: str) -> dict[str, Any]:
        return {"error": {"code": 0, "message": message, "status": kind.upper()}}

    def read(self, question: Question) -> Sent:
        parts = [(turn["role"], part) for turn in question.body["contents"] for part in turn["parts"]]
        system = question.body.get("systemInstruction", {"parts": []})
        declared = [tool for group in question.body.get("tools", []) for tool in group["functionDeclarations"]]
        calls = [part["functionCall"] for _, part in parts if "functionCall" in part]
        results = [part["functionResponse"] for _, part in parts if "functionResponse" in part]
        return Sent(
            model=question.path.partition("/models/")[2].partition(":")[0],
            instructions="\n".join(part["text"] for part in system["parts"]),
            tools={tool["name"]: tool["parameters_json_schema"] for tool in declared},
            calls=[(call["id"], call["name"], call["args"]) for call in calls],
            results=[(result["id"], _plain(result["response"])) for result in results],
            users=[part["text"] for role, part in parts if role == "user" and "text" in part],
        )

    def choice(self, question: Question) -> Any:
        return question.body["toolConfig"]["functionCallingConfig"]["mode"]


def _as_asked(question: Question, answer: Answer) -> Answer:
    """A whole reply, sent in pieces if the request asked for them."""
    streams = question.body.get("stream") or "streamGenerateContent" in question.path
    plain = isinstance(answer.body, dict) and answer.status == 200 and answer.ending == "whole"
    if not streams or not plain or answer.events:
        return answer
    body = answer.body
    if "candidates" in body:
        return replace(answer, events=(_sse(body),))
    if "choices" in body:
        message, finish = body["choices"][0]["message"], body["choices"][0]["finish_reason"]
        calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls") or [])]
        said = {"index": 0, "delta": {**message, "tool_calls": calls or None}, "finish_reason": None}
        ended = {"index": 0, "delta": {}, "finish_reason": finish}
        base = {**body, "object": "chat.completion.chunk"}
        pieces = [{**base, "usage": None, "choices": [choice]} for choice in (said, ended)]
        return replace(answer, events=(*map(_sse, (*pieces, {**base, "choices": []})), b"data: [DONE]\n\n"))
    text = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    calls = [(b["id"], b["name"], b["input"]) for b in body["content"] if b["type"] == "tool_use"]
    return replace(answer, events=DIALECTS["anthropic"].stream(*([text] if text else []), calls=calls))


def _sse(data: Any, event: str = "") -> bytes:
    return (f"event: {event}\n" if event else "").encode() + b"data: " + json.dumps(data).encode() + b"\n\n"


def _plain(content: Any) -> str:
    """The text of a result, which some dialects wrap."""
    if isinstance(content, str):
        return content
    first = content[0] if isinstance(content, list) else content
    return str(next(value for name, value in first.items() if name != "type"))


DIALECTS: dict[str, Any] = {"openai": OpenAI(), "anthropic": Anthropic(), "google": Google()}
