"""What the shop's tools say beforehand that a call would change, and what can be undone."""

import pytest

from agentapp.demo import amends, data, shop
from agentapp.demo.models import Credit
from agentapp.tools.base import ToolError


@pytest.fixture(autouse=True)
def kettles(db):
    data.load_shop()


def foreseen(lines):
    return {line["name"]: line["after"] for line in lines}


def test_a_refund_comes_out_as_its_dry_run_says():
    lines = amends.refund_preview("58213", 14.5)
    assert lines[0] == {"name": "Left to refund", "before": "$214.50", "after": "$200.00"}
    shop.refund("58213", 14.5, "damaged_in_transit", "Sorry!", "key-1")
    assert amends.refund_outcome("58213") == foreseen(lines)


def test_a_refund_that_the_shop_would_not_make_has_no_dry_run():
    with pytest.raises(ToolError, match=r"only \$214.50"):
        amends.refund_preview("58213", 215)


def test_credit_comes_out_as_its_dry_run_says_and_so_does_cancelling_it():
    lines = amends.credit_preview("40310", 15)
    credit = shop.give_credit("40310", 15, "chip", "key-1")
    assert amends.credit_outcome("40310") == foreseen(lines) == {"Store credit": "$15.00"}
    named = amends.cancelling({"credit": f"CR-{credit.pk}"})["credit"]
    lines = amends.cancel_preview(named)
    amends.cancel_store_credit(named)
    assert amends.cancel_outcome(named) == foreseen(lines) == {"Store credit": "$0.00"}
    assert amends.credit_state(named)["state"] == "cancelled"


def test_credit_is_cancelled_once():
    credit = shop.give_credit("40310", 15, "chip", "key-1")
    first = shop.cancel_credit(credit.pk)
    with pytest.raises(shop.ShopError, match="cancelled already"):
        shop.cancel_credit(credit.pk)
    assert Credit.objects.get(pk=credit.pk).cancelled_at == first.cancelled_at


def test_there_is_nothing_to_cancel_where_nothing_was_given():
    for look in (amends.credit_state, amends.cancel_store_credit):
        with pytest.raises(ToolError, match="no credit CR-9"):
            look("CR-9")
