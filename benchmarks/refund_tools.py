"""The tools of the refund run, for the product. Named in TOOL_MODULES by `refund.py`."""

from typing import Any

from agentapp.tools.base import ToolContext, tool
from benchmarks import refund_work as work


@tool(effect="read", trust="trusted_system")
def read_order(order_id: str, context: ToolContext) -> dict[str, Any]:
    """Read an order."""
    work.effect(context.run_id, "read_order", {"order_id": order_id})
    return work.ORDER


@tool(effect="read")
def search_refund_policy(query: str, context: ToolContext) -> list[dict[str, Any]]:
    """Search the refund policy."""
    work.effect(context.run_id, "search_refund_policy", {"query": query})
    return work.POLICY


@tool(effect="read", trust="trusted_system")
def draft_refund(order_id: str, amount: float, context: ToolContext) -> dict[str, Any]:
    """Draft a refund. Nothing is paid."""
    work.effect(context.run_id, "draft_refund", {"order_id": order_id, "amount": amount})
    return work.DRAFT


@tool(effect="irreversible", sentence="Refund {amount} for order {order_id}.")
def issue_refund(order_id: str, amount: float, context: ToolContext) -> dict[str, Any]:
    """Pay a refund."""
    work.effect(context.run_id, "issue_refund", {"order_id": order_id, "amount": amount})
    return work.ISSUED
