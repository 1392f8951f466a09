"""The refund run, as every side of the benchmark does it: what is said, and what the tools do.

A customer wants money back. Turn 1 reads the order and searches the policy, turn 2 drafts the refund, turn 3 issues it,
which waits for a person, and turn 4 answers. The model is a script and takes no time. Each tool inserts a row in a
transaction of its own.

Imports neither the product nor the rival.
"""

import json
import os
import threading
from typing import Any

from psycopg_pool import ConnectionPool

TOOLS = ("read_order", "search_refund_policy", "draft_refund", "issue_refund")
INPUT = "Order 58213 arrived broken. Please refund it."
ORDER_ID, AMOUNT = "58213", 84.5


def _words(size: int, text: str) -> str:
    return (text * (size // len(text) + 1))[:size]


INSTRUCTIONS = _words(1000, "You work in the support team of a shop. Look things up before you propose anything. ")
ORDER = {"order_id": ORDER_ID, "total": AMOUNT, "notes": _words(550, "One kettle, sent on Monday, arrived on Friday. ")}
POLICY = [{"section": f"4.{n}", "text": _words(390, "What arrives broken is refunded in full. ")} for n in range(3)]
DRAFT = {"draft": _words(85, "Refund of 84.50 for order 58213, damaged in transit. ")}
ISSUED = {"refunded": AMOUNT}
ANSWER = _words(200, "Your refund is on its way. It takes three days. ")

ABOUT_ORDER = {"order_id": ORDER_ID}
ABOUT_POLICY = {"query": "broken on arrival"}
ABOUT_REFUND: dict[str, Any] = {"order_id": ORDER_ID, "amount": AMOUNT}

_lock = threading.Lock()
_pools: dict[int, ConnectionPool] = {}


def effect(run_id: str, tool: str, arguments: dict[str, Any]) -> None:
    """What a tool does to the world."""
    with _pool().connection() as connection:
        connection.execute(
            "INSERT INTO effects (run_id, tool, args) VALUES (%s, %s, %s)", [run_id, tool, json.dumps(arguments)]
        )


def _pool() -> ConnectionPool:
    with _lock:  # a forked process needs its own
        if os.getpid() not in _pools:
            _pools[os.getpid()] = ConnectionPool(
                os.environ["EFFECTS_URL"], min_size=1, max_size=16, kwargs={"autocommit": True}, open=True
            )
        return _pools[os.getpid()]
