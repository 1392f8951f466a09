"""Finding things in the shop, and the states that decisions rest on."""

from typing import Any

from agentapp.demo.models import Customer, Order, Ticket
from agentapp.tools.base import ToolError


def find_order(number: str) -> Order:
    """An order with its customer and payment. Raises ToolError."""
    order = Order.objects.select_related("customer", "payment").filter(pk=number).first()
    if order is None:
        raise ToolError(f"There is no order {number}. Find it with search_orders.")
    return order


def find_customer(number: str) -> Customer:
    """Raises ToolError when there is none."""
    customer = Customer.objects.filter(pk=number).first()
    if customer is None:
        raise ToolError(f"There is no customer {number}. Take the number from an order or a ticket.")
    return customer


def find_ticket(number: str) -> Ticket:
    """A ticket with its customer. Raises ToolError."""
    ticket = Ticket.objects.select_related("customer").filter(pk=number).first()
    if ticket is None:
        raise ToolError(f"There is no ticket {number}. Ask the customer for its number.")
    return ticket


def order_facts(order: Order) -> dict[str, Any]:
    """What a model is told about an order."""
    return {
        "order_id": order.number,
        "customer_id": order.customer_id,
        "customer": order.customer.name,
        "items": [
            {"sku": item.sku, "name": item.name, "quantity": item.quantity, "unit_price": float(item.unit_price)}
            for item in order.items.all()
        ],
        "shipping": float(order.shipping),
        "paid": float(order.payment.amount),
        "refunded": float(order.refunded),
        "card": str(order.payment),
        "currency": order.currency,
        "state": order.state,
        "placed_at": order.placed_at,
        "packed_at": order.packed_at,
        "delivered_at": order.delivered_at,
        "delivery_address": order.delivery_address,
    }


def payment_state(order_id: str) -> dict[str, Any]:
    """What was paid and refunded, to which card, and who is told."""
    order = find_order(order_id)
    payment = getattr(order, "payment", None)
    if payment is None:
        raise ToolError(f"Order {order_id} has not been paid, so there is nothing to refund.")
    return {
        "customer": order.customer.name,
        "email": order.customer.email,
        "card": str(payment),
        "paid": float(payment.amount),
        "refunded": float(order.refunded),
        "currency": order.currency,
    }


def parcel_state(order_id: str) -> dict[str, Any]:
    """Where an order is, and where it is going."""
    order = find_order(order_id)
    return {"customer": order.customer.name, "state": order.state, "address": order.delivery_address}


def return_state(order_id: str) -> dict[str, Any]:
    """Whose order it is, who is told, and whether it can come back."""
    order = find_order(order_id)
    return {"customer": order.customer.name, "email": order.customer.email, "state": order.state}


def customer_state(customer_id: str) -> dict[str, Any]:
    """Who a customer is."""
    customer = find_customer(customer_id)
    return {"customer": customer.name, "email": customer.email}


def holdings(customer_id: str) -> dict[str, Any]:
    """How much there is about a customer."""
    customer = find_customer(customer_id)
    return {
        "customer": customer.name,
        "email": customer.email,
        "orders": customer.orders.count(),
        "tickets": customer.tickets.count(),
    }


def ticket_state(ticket_id: str) -> dict[str, Any]:
    """What a ticket is about and whether it is open."""
    ticket = find_ticket(ticket_id)
    return {"subject": ticket.subject, "state": ticket.state, "customer": ticket.customer.name}
