"""What the shop can take back, and what its tools predict that a call would change."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from agentapp.demo import lookups, shop
from agentapp.demo.models import Credit
from agentapp.tools.base import EffectLine, ToolError, tool

CreditId = Annotated[str, Field(pattern=r"^CR-\d+$", title="Credit")]


def refund_preview(order_id: str, amount: float) -> list[dict[str, Any]]:
    """How much of an order can still be refunded, and how many refunds it has, before and after one more."""
    order = lookups.find_order(order_id)
    left, made = order.payment.amount - order.refunded, order.refunds.count()
    if Decimal(str(amount)) > left:
        raise ToolError(f"only {_dollars(left)} of order {order_id} can be refunded")
    return [
        {"name": "Left to refund", "before": _dollars(left), "after": _dollars(left - Decimal(str(amount)))},
        {"name": "Refunds of the order", "before": made, "after": made + 1},
        {"name": "Emails to the customer", "before": order.customer.emails.count(),
         "after": order.customer.emails.count() + 1},
    ]  # fmt: skip


def refund_outcome(order_id: str) -> dict[str, Any]:
    """The same, as it is now."""
    order = lookups.find_order(order_id)
    return {
        "Left to refund": _dollars(order.payment.amount - order.refunded),
        "Refunds of the order": order.refunds.count(),
        "Emails to the customer": order.customer.emails.count(),
    }


def credit_preview(customer_id: str, amount: float) -> list[dict[str, Any]]:
    """A customer's credit, before and after giving more."""
    before = _credit_of(customer_id)
    return [{"name": "Store credit", "before": _dollars(before), "after": _dollars(before + Decimal(str(amount)))}]


def credit_outcome(customer_id: str) -> dict[str, Any]:
    """What credit they have now."""
    return {"Store credit": _dollars(_credit_of(customer_id))}


def cancelling(result: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `cancel_store_credit` that take back what was given."""
    return {"credit": result["credit"]}


def credit_state(credit: str) -> dict[str, Any]:
    """Whose credit it is, how much, and whether it is still valid."""
    row = _credit(credit)
    return {
        "customer": row.customer.name,
        "email": row.customer.email,
        "amount": float(row.amount),
        "state": "cancelled" if row.cancelled_at else "open",
    }


def cancel_preview(credit: str) -> list[dict[str, Any]]:
    """The customer's credit, with this one and without it."""
    row = _credit(credit)
    before = _credit_of(row.customer_id)
    return [{"name": "Store credit", "before": _dollars(before), "after": _dollars(before - row.amount)}]


def cancel_outcome(credit: str) -> dict[str, Any]:
    """What credit they have now."""
    return {"Store credit": _dollars(_credit_of(_credit(credit).customer_id))}


@tool(
    effect="compensable",
    title="Cancel {snapshot.amount:money} of store credit of {snapshot.customer}",
    sentence="The agent will cancel {credit}, {snapshot.amount:money} of store credit of {snapshot.customer}.",
    effects=(EffectLine("{snapshot.amount:money} can no longer be spent", "It can be given again", "money"),),
    button="{snapshot.amount:money}",
    snapshot=credit_state,
    preview=cancel_preview,
    outcome=cancel_outcome,
    trust="trusted_system",
    locked=("credit",),
)
def cancel_store_credit(credit: CreditId) -> dict[str, Any]:
    """Cancel store credit that was given and is not spent.

    Args:
        credit: The credit's number, as in CR-12.
    """
    row = shop.cancel_credit(_number(credit))
    return {"credit": credit, "customer_id": row.customer_id, "amount": float(row.amount), "cancelled": True}


def _credit_of(customer_id: str) -> Decimal:
    amounts = lookups.find_customer(customer_id).credits.filter(cancelled_at__isnull=True)
    return sum(amounts.values_list("amount", flat=True), Decimal(0))


def _credit(credit: str) -> Credit:
    row = Credit.objects.select_related("customer").filter(pk=_number(credit)).first()
    if row is None:
        raise ToolError(f"There is no credit {credit}.")
    return row


def _number(credit: str) -> int:
    return int(credit.removeprefix("CR-"))


def _dollars(amount: Decimal) -> str:
    return f"${amount:,.2f}"
