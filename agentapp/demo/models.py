"""The shop's tables. Only `shop` writes them."""

from decimal import Decimal

from django.db import models
from django.db.models import Q, Sum


class Customer(models.Model):
    number = models.CharField(max_length=10, primary_key=True)
    name = models.CharField(max_length=120)
    email = models.EmailField()
    phone = models.CharField(max_length=40, blank=True)
    address = models.TextField()
    since = models.DateField()
    erased_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    number = models.CharField(max_length=10, primary_key=True)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")
    currency = models.CharField(max_length=3, default="USD")
    shipping = models.DecimalField(max_digits=10, decimal_places=2, default=Decimal(0))
    delivery_address = models.TextField()
    carrier = models.CharField(max_length=40, default="Halden Freight")
    placed_at = models.DateTimeField()
    packed_at = models.DateTimeField(null=True, blank=True)
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-placed_at"]

    def __str__(self) -> str:
        return self.number

    @property
    def state(self) -> str:
        """One word for where the parcel is."""
        if self.delivered_at:
            return "delivered"
        return "packed" if self.packed_at else "open"

    @property
    def refunded(self) -> Decimal:
        return self.refunds.aggregate(total=Sum("amount"))["total"] or Decimal(0)


class OrderItem(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="items")
    sku = models.CharField(max_length=20)
    name = models.CharField(max_length=120)
    quantity = models.PositiveSmallIntegerField(default=1)
    unit_price = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        ordering = ["order", "sku"]
        constraints = [models.UniqueConstraint(fields=["order", "sku"], name="item_once_per_order")]

    def __str__(self) -> str:
        return f"{self.quantity} × {self.name}"


class Payment(models.Model):
    """What was paid for an order, and with what."""

    order = models.OneToOneField(Order, on_delete=models.PROTECT, related_name="payment")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    card_brand = models.CharField(max_length=20)
    card_last4 = models.CharField(max_length=4)
    paid_at = models.DateTimeField()

    class Meta:
        ordering = ["-paid_at"]

    def __str__(self) -> str:
        return f"{self.card_brand} ending {self.card_last4}"


class Refund(models.Model):
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="refunds")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    reason = models.CharField(max_length=40)
    # The key that the refund was requested with. The same key means the same refund.
    idempotency_key = models.CharField(max_length=200, unique=True)
    made_at = models.DateTimeField()

    class Meta:
        ordering = ["-made_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(amount__gt=0),
                name="refund_returns_something",
                violation_error_message="A refund returns more than nothing.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.amount} for {self.order_id}"


class Credit(models.Model):
    """Store credit given to a customer."""

    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="credits")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    reason = models.CharField(max_length=200)
    idempotency_key = models.CharField(max_length=200, unique=True)
    given_at = models.DateTimeField()
    cancelled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-given_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(amount__gt=0),
                name="credit_gives_something",
                violation_error_message="A credit gives more than nothing.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.amount} for {self.customer_id}"


class Ticket(models.Model):
    class State(models.TextChoices):
        OPEN = "open", "Open"
        CLOSED = "closed", "Closed"

    number = models.CharField(max_length=10, primary_key=True)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="tickets")
    order = models.ForeignKey(Order, null=True, blank=True, on_delete=models.PROTECT, related_name="tickets")
    subject = models.CharField(max_length=200)
    body = models.TextField()
    attachments = models.JSONField(default=list)
    tags = models.JSONField(default=list)
    state = models.CharField(max_length=10, choices=State, default=State.OPEN)
    closing_code = models.CharField(max_length=40, blank=True)
    received_at = models.DateTimeField()

    class Meta:
        ordering = ["-received_at"]

    def __str__(self) -> str:
        return f"{self.number} {self.subject}"


class AddressChange(models.Model):
    """A changed delivery address, with the previous one, which is needed to change it back."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="address_changes")
    before = models.TextField()
    after = models.TextField()
    repacked = models.BooleanField(help_text="The parcel had been packed and was relabelled.")
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ["-changed_at"]

    def __str__(self) -> str:
        return f"{self.order_id} to {self.after}"


class Email(models.Model):
    """A message the shop has sent. What is sent cannot be taken back."""

    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="emails")
    to = models.EmailField()
    subject = models.CharField(max_length=200)
    body = models.TextField()
    sent_at = models.DateTimeField()

    class Meta:
        ordering = ["-sent_at"]

    def __str__(self) -> str:
        return self.subject
