from decimal import Decimal
from threading import Thread

import pytest
from django.db import IntegrityError, connection

from agentapp.demo import data, shop
from agentapp.demo.models import AddressChange, Credit, Customer, Email, Order, OrderItem, Payment, Refund, Ticket


@pytest.fixture
def kettles(db):
    data.load_shop()


def test_loading_the_shop_twice_changes_nothing(kettles):
    shop.change_address("58177", "1 Canal Park, Duluth, MN 55802")
    counts = [model.objects.count() for model in (Customer, Order, OrderItem, Payment, Ticket)]
    assert data.load_shop() == 0
    assert [model.objects.count() for model in (Customer, Order, OrderItem, Payment, Ticket)] == counts
    assert Order.objects.get(pk="58177").delivery_address.startswith("1 Canal Park")


def test_what_was_paid_is_the_items_and_the_shipping(kettles):
    for order in Order.objects.all():
        items = sum(item.quantity * item.unit_price for item in order.items.all())
        assert order.payment.amount == items + order.shipping, order


def test_a_refund_returns_money_and_tells_the_customer(kettles):
    done = shop.refund("58213", 100.5, "damaged_in_transit", "Sorry!", "key-1")
    assert (done.left, done.repeated) == (Decimal("114.00"), False)
    assert Email.objects.get().to == "ana.pereira@mail.example"


def test_the_same_key_refunds_once(kettles):
    first = shop.refund("58213", 214.5, "damaged_in_transit", "Sorry!", "key-1")
    second = shop.refund("58213", 214.5, "damaged_in_transit", "Sorry!", "key-1")
    assert second.repeated
    assert second.refund == first.refund
    assert Refund.objects.count() == Email.objects.count() == 1


def test_a_key_belongs_to_one_refund(kettles):
    shop.refund("58213", 20, "changed_mind", "Hi", "key-1")
    with pytest.raises(shop.ShopError, match="different refund"):
        shop.refund("58213", 30, "changed_mind", "Hi", "key-1")


def test_no_more_is_refunded_than_was_paid(kettles):
    shop.refund("58213", 200, "changed_mind", "Hi", "key-1")
    with pytest.raises(shop.ShopError, match=r"at most 14\.50"):
        shop.refund("58213", 14.51, "changed_mind", "Hi", "key-2")
    assert Refund.objects.count() == 1


@pytest.mark.parametrize("amount", [0, -5, 10.005])
def test_an_amount_is_some_whole_number_of_cents(kettles, amount):
    with pytest.raises(shop.ShopError):
        shop.refund("58213", amount, "changed_mind", "Hi", "key-1")


@pytest.mark.django_db(transaction=True)
def test_two_refunds_at_once_never_exceed_what_was_paid():
    data.load_shop()
    refused = []

    def ask(key: str) -> None:
        try:
            shop.refund("58213", 150, "changed_mind", "Hi", key)
        except shop.ShopError as error:
            refused.append(error)
        finally:
            connection.close()

    threads = [Thread(target=ask, args=(f"key-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Refund.objects.count() == 1
    assert len(refused) == 3


def test_the_database_refuses_a_second_refund_with_a_key(kettles):
    row = shop.refund("58213", 10, "changed_mind", "Hi", "key-1").refund
    row.pk = None
    with pytest.raises(IntegrityError):
        row.save(force_insert=True)


def test_credit_is_given_once_per_key_and_within_limits(kettles):
    first = shop.give_credit("40310", 15, "chip", "key-1")
    assert shop.give_credit("40310", 15, "chip", "key-1") == first
    assert Credit.objects.filter(customer_id="40310").count() == 1
    with pytest.raises(shop.ShopError, match=r"50\.00 at most"):
        shop.give_credit("40310", 50.01, "chip", "key-2")


def test_an_address_change_keeps_what_it_takes_to_change_it_back(kettles):
    before = Order.objects.get(pk="58177").delivery_address
    change = shop.change_address("58177", "1 Canal Park, Duluth, MN 55802")
    assert change.repacked
    shop.change_address("58177", change.before)
    assert Order.objects.get(pk="58177").delivery_address == before
    assert AddressChange.objects.count() == 2


def test_a_delivered_order_stays_where_it_is(kettles):
    with pytest.raises(shop.ShopError, match="has been delivered"):
        shop.change_address("58213", "1 Canal Park, Duluth, MN 55802")


def test_a_ticket_is_closed_once(kettles):
    shop.close("88213", "refunded")
    with pytest.raises(shop.ShopError, match="closed already"):
        shop.close("88213", "solved")


def test_erasing_a_customer_leaves_the_books_and_no_name(kettles):
    shop.send("40601", "Goodbye", "Dear Tomas")
    shop.erase("40601")
    customer = Customer.objects.get(pk="40601")
    kept = f"{customer.name}{customer.email}{customer.address}"
    kept += "".join(f"{ticket.subject}{ticket.body}" for ticket in customer.tickets.all())
    kept += "".join(order.delivery_address for order in customer.orders.all())
    kept += "".join(f"{email.to}{email.subject}{email.body}" for email in customer.emails.all())
    assert "Tomas" not in kept
    assert "Orchard" not in kept
    assert customer.orders.get().payment.amount == Decimal("56.00")


def test_a_customer_with_an_order_under_way_is_not_erased(kettles):
    with pytest.raises(shop.ShopError, match="under way"):
        shop.erase("40233")


@pytest.mark.parametrize(
    "act",
    [
        lambda: shop.refund("99999", 1, "changed_mind", "Hi", "key"),
        lambda: shop.give_credit("99999", 1, "chip", "key"),
        lambda: shop.change_address("99999", "1 Canal Park, Duluth"),
        lambda: shop.tag("99999", ["x"]),
        lambda: shop.send("99999", "Hi", "Hi"),
        lambda: shop.erase("99999"),
    ],
)
def test_what_is_not_there_is_named(kettles, act):
    with pytest.raises(shop.ShopError, match="99999"):
        act()
