"""The tools of the concierge, who writes with customers directly: each customer sees only what is theirs."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from django.db.models import QuerySet
from pydantic import Field

from agentapp.demo import data, lookups, shop
from agentapp.demo.models import Customer, Order
from agentapp.guidance.known import Context
from agentapp.tools.base import EffectLine, ToolContext, ToolError, ToolResult, tool

OwnOrder = Annotated[str, Field(pattern=r"^\d{5}$", title="Order")]


def own_orders(context: Context) -> list[str]:
    """The orders a customer can ask about: their own."""
    return list(_orders_of(context.customer).values_list("number", flat=True))


def returnable_orders(context: Context) -> list[str]:
    """The orders a customer can send back: their own, once they have arrived."""
    return list(_orders_of(context.customer).filter(delivered_at__isnull=False).values_list("number", flat=True))


@tool(owner="Support", effect="read", trust="trusted_system", title="List the customer's orders")
def list_own_orders(context: ToolContext) -> list[dict[str, Any]]:
    """List the orders of the customer who writes: what was ordered, and where each is."""
    return [
        {"order_id": order.number, "state": order.state, "items": [item.name for item in order.items.all()]}
        for order in _orders_of(context.customer).prefetch_related("items")
    ]


@tool(
    owner="Support",
    effect="read",
    trust="trusted_system",
    title="Follow order {order_id}",
    parameters={
        "order_id": {
            "source": "customer",
            "display_name": "order number",
            "significance": "Several orders may be under way.",
            "examples": ["58213"],
            "choice_provider": "agentapp.demo.chat_tools.own_orders",
        }
    },
)
def follow_order(order_id: OwnOrder, context: ToolContext) -> dict[str, Any]:
    """Find out where one of the customer's orders is, and where it is going.

    Args:
        order_id: The five digits of the order.
    """
    return lookups.parcel_state(_own(order_id, context).number)


@tool(owner="Support", effect="read", trust="trusted_system", title="Read the customer's store credit")
def get_store_credit(context: ToolContext) -> dict[str, Any]:
    """Read how much store credit the customer who writes has left."""
    credits = _customer(context.customer).credits.filter(cancelled_at__isnull=True).values_list("amount", flat=True)
    return {"credit": float(sum(credits, Decimal(0))), "currency": "USD"}


@tool(owner="Support", effect="read", trust="trusted_system", title="Recommend something up to ${budget}")
def recommend_products(
    budget: Annotated[float, Field(gt=0, le=100_000, title="Budget")],
) -> list[dict[str, Any]]:
    """Recommend what the shop has up to a price, the dearest first.

    Args:
        budget: In US dollars, as what is left of the customer's store credit.
    """
    found = [product for product in data.PRODUCTS if product.price <= budget]
    found.sort(key=lambda product: product.price, reverse=True)
    return [{"sku": product.sku, "name": product.name, "price": float(product.price)} for product in found[:3]]


@tool(
    owner="Support",
    effect="compensable",
    trust="trusted_system",
    title="Take back order {order_id}",
    sentence=(
        "The shop will take back order {order_id} from {snapshot.customer}, who says: {reason}. "
        "A prepaid label is mailed to {snapshot.email}; the money goes back when the parcel is here."
    ),
    effects=(
        EffectLine("A return is opened", "For order {order_id}", "box"),
        EffectLine("1 person is told", "{snapshot.email}", "mail"),
    ),
    button="return of order {order_id}",
    snapshot=lookups.return_state,
    idempotency="key",
    locked=("order_id",),
    parameters={
        "order_id": {
            "display_name": "order number",
            "significance": "Only what has arrived can be sent back.",
            "precedence": 1,
            "choice_provider": "agentapp.demo.chat_tools.returnable_orders",
        },
        "reason": {
            "display_name": "what is wrong with it",
            "significance": "It decides who pays for the way back.",
            "precedence": 2,
        },
        "note": {"display_name": "anything the warehouse should know", "precedence": 3},
    },
)
def open_return(
    order_id: OwnOrder,
    reason: Annotated[
        Literal["damaged", "wrong_item", "changed_mind"],
        Field(title="Reason", json_schema_extra={"x-enum-titles": ["Damaged", "Wrong item", "Changed mind"]}),
    ],
    context: ToolContext,
    note: Annotated[str | None, Field(max_length=400, title="Note")] = None,
) -> dict[str, Any]:
    """Open a return for one of the customer's orders, and mail them a prepaid label.

    Args:
        order_id: The five digits of the order.
        reason: Why it comes back.
        note: What the warehouse should know.
    """
    ticket = shop.open_return(_own(order_id, context).number, reason, note or "")
    return {"return": ticket.number, "order_id": order_id, "label_sent_to": ticket.customer.email}


@tool(
    owner="Support", effect="reversible", trust="trusted_system", title="Let a person take over", button="handing over"
)
def call_a_person(
    about: Annotated[str, Field(min_length=3, max_length=200, title="About")], context: ToolContext
) -> ToolResult:
    """Hand the conversation to a person of the shop, who answers from then on.

    Args:
        about: What it is about, in a few words, for that person.
    """
    return ToolResult(data={"handed_over": True, "about": about}, control={"session_mode": "manual"})


def _customer(name: str) -> Customer:
    """The customer a conversation is with, by number or name. Raises ToolError."""
    customer = Customer.objects.filter(pk=name).first() or Customer.objects.filter(name=name).first()
    if customer is None or customer.erased_at:
        raise ToolError("The shop does not know who writes. Ask for the address they ordered with, and call a person.")
    return customer


def _orders_of(name: str) -> QuerySet[Order]:
    return Order.objects.filter(customer=_customer(name)).order_by("-placed_at")


def _own(number: str, context: ToolContext) -> Order:
    order = _orders_of(context.customer).filter(pk=number).first()
    if order is None:
        raise ToolError(f"{number} is no order of this customer. Their own are listed by list_own_orders.")
    return order
