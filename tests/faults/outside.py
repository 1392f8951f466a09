"""People who work with the product through its API, and do not give up when it is away for a while.

They keep what they are told: an acknowledged run must not be lost, nor a decision.
"""

import http.client
import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.conftest import call, calls, says

PATIENCE_SECONDS = 120
BETWEEN_SECONDS = 0.1


class Refused(Exception):
    """It answered, and the answer is final: `status` and what it says."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said[:300]}")
        self.status = status


class Outside:
    def __init__(self, url: str, tokens: dict[str, str]) -> None:
        self._url, self._tokens = url, tokens
        self.decided: list[uuid.UUID] = []
        """Decisions that were acknowledged."""
        self.failures: list[str] = []
        """Answers that must never be given, whatever happens: a debugger's pages, or others that are not ours."""
        self._sent: dict[str, str] = {}
        self._over = threading.Event()
        self._decider: threading.Thread | None = None

    # --- Starting runs -------------------------------------------------------------------------

    def start(self, *replies: dict[str, Any], agent: str = "shop", item: str = "") -> uuid.UUID:
        """Start a run, and keep asking until it is acknowledged. Without replies: one of every kind of call."""
        script = [*replies] or of_every_kind(item or uuid.uuid4().hex[:8])
        body = {"agent": agent, "input": "See to it.", "script": script}
        return uuid.UUID(self.insist("sam", "/runs", body, key=uuid.uuid4().hex)["id"])

    def start_many(self, count: int, *replies: dict[str, Any]) -> list[uuid.UUID]:
        with ThreadPoolExecutor(4) as together:
            return list(together.map(lambda _: self.start(*replies), range(count)))

    # --- Deciding ------------------------------------------------------------------------------

    def decide_everything(self) -> None:
        """Approve whatever turns up, in a thread, until told to stop."""
        if self._decider is None:
            self._over.clear()
            self._decider = threading.Thread(target=self._decide, daemon=True)
            self._decider.start()

    def stop(self) -> None:
        self._over.set()
        if self._decider is not None:
            self._decider.join(30)
            self._decider = None

    def approve(self, approval: dict[str, Any]) -> None:
        """Send one decision, with the same id each time, until it is answered."""
        decision = self._sent.setdefault(approval["id"], str(uuid.uuid4()))
        body = {
            "decision_id": decision,
            "type": "approve",
            "version": approval["version"],
            "action_digest": approval["action_digest"],
        }
        taken = self.ask("dana", f"/approvals/{approval['id']}/decisions", body)
        self.decided.append(uuid.UUID(taken["decision"]["id"]))

    def _decide(self) -> None:
        while not self._over.is_set():
            found = 0
            try:
                for approval in self.ask("dana", "/approvals?state=pending&limit=50")["items"]:
                    found += 1
                    self.approve(approval)
            except Refused as refused:
                if refused.status not in (404, 409):  # somebody was first, or it is asked again
                    self.failures.append(f"deciding: {refused}")
            except Away:
                found = 0
            if not found:
                self._over.wait(BETWEEN_SECONDS)

    # --- Asking --------------------------------------------------------------------------------

    def insist(self, who: str, path: str, body: Any = None, key: str = "") -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self.ask(who, path, body, key)
            except Away:
                if time.monotonic() > deadline:
                    raise
                time.sleep(BETWEEN_SECONDS)

    def ask(self, who: str, path: str, body: Any = None, key: str = "", within: float = 30) -> Any:
        """Ask once. Raises Away if nobody answers or the answer is "not now", Refused if the answer is no."""
        headers = {"Authorization": f"Bearer {self._tokens[who]}", "Content-Type": "application/json"}
        headers |= {"Idempotency-Key": key} if key else {}
        data = json.dumps(body).encode() if body is not None else None
        try:
            with urlopen(Request(f"{self._url}/api/v1{path}", data, headers), timeout=within) as answer:
                return json.load(answer)
        except HTTPError as error:
            said = error.read().decode(errors="replace")
            if "Traceback" in said:
                self.failures.append(f"a traceback was shown at {path}")
            if error.code >= 500 or error.code == 429:  # too many at once
                raise Away(f"{error.code} at {path}: {said[:200]}") from error
            raise Refused(error.code, said) from error
        except (URLError, OSError, http.client.HTTPException, ValueError) as error:
            raise Away(f"{path}: {error}") from error


class Away(Exception):
    """Nobody answers, or the answer is "not now"."""


def of_every_kind(item: str) -> list[dict[str, Any]]:
    """Two reads, a write that a rule allows, two that people are asked about, an answer."""
    return [
        calls(call("look-1", "read_order", item=item), call("look-2", "read_order", item=f"{item}-policy")),
        calls(call("draft", "draft", item=item)),
        calls(call("wire", "wire", item=item), call("wire-once", "wire_once", item=item)),
        says("It is done."),
    ]


def wiring(tool: str, item: str = "x") -> list[dict[str, Any]]:
    """One call that people are asked about, an answer."""
    return [calls(call("wire", tool, item=item)), says("It is done.")]
