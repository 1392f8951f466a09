"""The only writer of the shop's tables. Each function is one act, done completely or not at all.

What cannot be done raises ShopError, whose message tells the model what to do instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from django.db import models, transaction
from django.utils import timezone

from agentapp.demo.models import (
    AddressChange,
    Credit,
    Customer,
    Email,
    Order,
    Payment,
    Refund,
    Ticket,
)
from agentapp.tools.base import ToolError

CENT = Decimal("0.01")
MAX_CREDIT = Decimal("50.00")


class ShopError(ToolError):
    """The shop will not do this. The message says what is possible instead."""


@dataclass(frozen=True)
class Refunded:
    """A refund and what is left afterwards. `repeated`: the key was used before, so nothing happened now."""

    refund: Refund
    payment: Payment
    left: Decimal
    repeated: bool = False


def money(amount: float | Decimal) -> Decimal:
    """An amount in whole cents. Raises ShopError for fractions of a cent and for nothing."""
    value = Decimal(str(amount))
    cents = value.quantize(CENT, ROUND_HALF_UP)
    if cents != value:
        raise ShopError(f"{amount} is not a whole number of cents; use two decimals.")
    if cents <= 0:
        raise ShopError("The amount must be more than zero.")
    return cents


def refund(order_number: str, amount: float, reason: str, message: str, key: str) -> Refunded:
    """Return money to the card an order was paid with, and tell the customer. Once per key."""
    value = money(amount)
    with transaction.atomic():
        order = _order(order_number)
        payment = _payment(order)
        made = Refund.objects.filter(idempotency_key=key).first()
        if made is not None:
            if (made.order_id, made.amount) != (order.number, value):
                raise ShopError("This key was used for a different refund; propose this one as a new call.")
            return Refunded(made, payment, payment.amount - order.refunded, repeated=True)
        left = payment.amount - order.refunded
        if value > left:
            raise ShopError(
                f"Order {order.number} was paid with {payment.amount} and {order.refunded} of it is refunded, "
                f"so at most {left} can be refunded. Propose that amount or less."
            )
        now = timezone.now()
        row = Refund.objects.create(order=order, amount=value, reason=reason, idempotency_key=key, made_at=now)
        _send(order.customer, f"Your refund for order {order.number}", message)
    return Refunded(row, payment, left - value)


def give_credit(customer_number: str, amount: float, reason: str, key: str) -> Credit:
    """Give store credit, once per key."""
    value = money(amount)
    if value > MAX_CREDIT:
        raise ShopError(f"Store credit is {MAX_CREDIT} at most. Propose that or less, or a refund.")
    with transaction.atomic():
        customer = _customer(customer_number)
        credit, _ = Credit.objects.get_or_create(
            idempotency_key=key,
            defaults={"customer": customer, "amount": value, "reason": reason, "given_at": timezone.now()},
        )
    if (credit.customer_id, credit.amount) != (customer.number, value):
        raise ShopError("This key was used for a different credit; propose this one as a new call.")
    return credit


def cancel_credit(number: int) -> Credit:
    """Cancel store credit, once."""
    with transaction.atomic():
        credit = Credit.objects.select_for_update().filter(pk=number).first()
        if credit is None:
            raise ShopError(f"There is no credit CR-{number}.")
        if credit.cancelled_at is not None:
            raise ShopError(f"Credit CR-{number} is cancelled already; nothing needs to change.")
        credit.cancelled_at = timezone.now()
        credit.save(update_fields=["cancelled_at"])
    return credit


def change_address(order_number: str, address: str) -> AddressChange:
    """Send an order somewhere else, as long as it has not been delivered."""
    with transaction.atomic():
        order = _order(order_number)
        if order.delivered_at:
            raise ShopError(f"Order {order.number} has been delivered; its address cannot change any more.")
        if order.delivery_address == address.strip():
            raise ShopError(f"Order {order.number} is going to that address already; nothing needs to change.")
        change = AddressChange.objects.create(
            order=order,
            before=order.delivery_address,
            after=address.strip(),
            repacked=order.packed_at is not None,
            changed_at=timezone.now(),
        )
        order.delivery_address = change.after
        order.save(update_fields=["delivery_address"])
    return change


def tag(ticket_number: str, tags: Sequence[str]) -> Ticket:
    """Add tags to a ticket. Existing tags stay."""
    with transaction.atomic():
        ticket = _ticket(ticket_number)
        ticket.tags = sorted({*ticket.tags, *(word.strip().lower() for word in tags if word.strip())})
        ticket.save(update_fields=["tags"])
    return ticket


def open_return(order_number: str, reason: str, note: str) -> Ticket:
    """Open a ticket for a return, and mail the customer a label. Nothing happens if a return is already open."""
    with transaction.atomic():
        order = _order(order_number)
        if not order.delivered_at:
            raise ShopError(f"Order {order.number} has not arrived, so it cannot come back yet.")
        customer = _customer(order.customer_id)
        subject = f"Return of order {order.number}"
        ticket = Ticket.objects.filter(order=order, subject=subject, state=Ticket.State.OPEN).first()
        if ticket is not None:
            return ticket
        latest = Ticket.objects.order_by("-number").values_list("number", flat=True).first()
        ticket = Ticket.objects.create(
            number=str(int(latest or "88000") + 1),
            customer=customer,
            order=order,
            subject=subject,
            body=f"{reason.replace('_', ' ').capitalize()}. {note}".strip(),
            received_at=timezone.now(),
        )
        _send(customer, subject, f"Your prepaid label for order {order.number} is attached.")
    return ticket


def close(ticket_number: str, code: str) -> Ticket:
    """Close a ticket under a closing code."""
    with transaction.atomic():
        ticket = _ticket(ticket_number)
        if ticket.state == Ticket.State.CLOSED:
            raise ShopError(f"Ticket {ticket.number} is closed already, as {ticket.closing_code}.")
        ticket.state, ticket.closing_code = Ticket.State.CLOSED, code
        ticket.save(update_fields=["state", "closing_code"])
    return ticket


def send(customer_number: str, subject: str, body: str) -> Email:
    """Send one message to a customer. Sending twice tells the customer twice."""
    with transaction.atomic():
        return _send(_customer(customer_number), subject, body)


def erase(customer_number: str) -> Customer:
    """Remove everything that says who a customer is. Orders and payments stay, for the books."""
    with transaction.atomic():
        customer = _customer(customer_number)
        open_orders = customer.orders.filter(delivered_at__isnull=True).count()
        if open_orders:
            raise ShopError(f"Customer {customer.number} has {open_orders} order(s) under way; erase after delivery.")
        customer.name, customer.email = "Erased customer", f"erased-{customer.number}@invalid.example"
        customer.phone, customer.address, customer.erased_at = "", "", timezone.now()
        customer.save()
        customer.tickets.update(subject="(erased)", body="", attachments=[])
        customer.orders.update(delivery_address="(erased)")
        AddressChange.objects.filter(order__customer=customer).update(before="(erased)", after="(erased)")
        customer.emails.update(to=customer.email, subject="(erased)", body="")
    return customer


def stock(groups: Sequence[Sequence[models.Model]]) -> int:
    """Add what is missing: a group of rows exists if its first row does. Returns how many were new."""
    with transaction.atomic():
        missing = [rows for rows in groups if not type(rows[0])._default_manager.filter(pk=rows[0].pk).exists()]
        for rows in missing:
            for row in rows:
                row.save(force_insert=True)
    return len(missing)


def _order(number: str) -> Order:
    order = Order.objects.select_for_update(of=("self",)).select_related("customer").filter(pk=number).first()
    if order is None:
        raise ShopError(f"There is no order {number!r}. Look it up with search_orders.")
    return order


def _payment(order: Order) -> Payment:
    payment = Payment.objects.filter(order=order).first()
    if payment is None:
        raise ShopError(f"Order {order.number} has not been paid, so there is nothing to refund.")
    return payment


def _customer(number: str) -> Customer:
    customer = Customer.objects.select_for_update().filter(pk=number).first()
    if customer is None:
        raise ShopError(f"There is no customer {number!r}. Look at the order or the ticket for the number.")
    if customer.erased_at:
        raise ShopError(f"The data of customer {number} has been erased.")
    return customer


def _ticket(number: str) -> Ticket:
    ticket = Ticket.objects.select_for_update().filter(pk=number).first()
    if ticket is None:
        raise ShopError(f"There is no ticket {number!r}.")
    return ticket


def _send(customer: Customer, subject: str, body: str) -> Email:
    return Email.objects.create(
        customer=customer, to=customer.email, subject=subject, body=body, sent_at=timezone.now()
    )
