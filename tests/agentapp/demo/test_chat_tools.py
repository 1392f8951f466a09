from datetime import UTC, datetime

import pytest

from agentapp.demo import chat_tools, data
from agentapp.demo.models import Email, Ticket
from agentapp.guidance.known import Context
from agentapp.tools import python_source
from agentapp.tools.base import ToolContext, ToolError


@pytest.fixture
def kettles(db):
    data.load_shop()


def of(customer: str) -> ToolContext:
    return ToolContext(
        run_id="", step=1, call_id="", agent="concierge", conversation_id="", customer=customer, actor="sam", route="",
        idempotency_key="key", deadline=datetime.now(UTC),
    )  # fmt: skip


def told(customer: str) -> Context:
    return Context("", 1, 1, "concierge", customer, "", "", (), ())


def test_a_customer_sees_their_own_orders(kettles):
    found = chat_tools.list_own_orders.run({}, of("Ana Pereira")).data
    assert {order["order_id"] for order in found} == {"58213", "57840"}


@pytest.mark.parametrize("name", ["40117", "Ana Pereira"])
def test_a_customer_is_known_by_number_or_name(kettles, name):
    assert chat_tools.own_orders(told(name)) == ["58213", "57840"]


@pytest.mark.parametrize("name", ["", "Nobody At All"])
def test_whom_the_shop_does_not_know_is_told_nothing(kettles, name):
    with pytest.raises(ToolError, match="does not know who writes"):
        chat_tools.list_own_orders.run({}, of(name))


def test_an_erased_customer_is_not_known_any_more(kettles):
    chat_tools.shop.erase("40601")
    with pytest.raises(ToolError, match="does not know who writes"):
        chat_tools.own_orders(told("40601"))


@pytest.mark.parametrize("act", ["follow_order", "open_return"])
def test_nobody_acts_on_an_order_of_somebody_else(kettles, act):
    arguments = {"order_id": "58213"} | ({"reason": "damaged"} if act == "open_return" else {})
    with pytest.raises(ToolError, match="no order of this customer"):
        getattr(chat_tools, act).run(arguments, of("Jon Okafor"))
    assert not Ticket.objects.filter(subject__startswith="Return").exists()


def test_what_has_not_arrived_is_no_choice_for_a_return(kettles):
    assert chat_tools.own_orders(told("Priya Nair")) == ["58244", "58102"]
    assert chat_tools.returnable_orders(told("Priya Nair")) == ["58102"]


def test_store_credit_is_what_was_given(kettles):
    assert chat_tools.get_store_credit.run({}, of("Priya Nair")).data == {"credit": 25.0, "currency": "USD"}
    assert chat_tools.get_store_credit.run({}, of("Ana Pereira")).data["credit"] == 0


def test_what_is_recommended_is_within_the_budget_the_dearest_first(kettles):
    found = chat_tools.recommend_products.run({"budget": 50.0}, of("Priya Nair")).data
    prices = [product["price"] for product in found]
    assert prices == sorted(prices, reverse=True)
    assert 0 < prices[0] <= 50


def test_a_return_is_opened_once_and_mailed_once(kettles):
    opened = [
        chat_tools.open_return.run({"order_id": "58213", "reason": "damaged"}, of("Ana Pereira")).data for _ in range(2)
    ]
    assert opened[0] == opened[1]
    assert Ticket.objects.get(subject="Return of order 58213").body == "Damaged."
    assert Email.objects.count() == 1


def test_what_has_not_arrived_cannot_come_back(kettles):
    with pytest.raises(ToolError, match="has not arrived"):
        chat_tools.open_return.run({"order_id": "58244", "reason": "changed_mind"}, of("Priya Nair"))


def test_a_person_is_called_by_handing_the_conversation_over():
    result = chat_tools.call_a_person.run({"about": "A refund"}, of("Ana Pereira"))
    assert (result.status, result.control) == ("ok", {"session_mode": "manual"})


def test_what_a_customer_is_asked_for_has_a_name_they_understand():
    for tool in python_source.modules()["agentapp.demo.chat_tools"]:
        for declared in tool.parameters.values():
            assert "_" not in declared.get("display_name", "_")


def test_what_stands_on_a_button_reads_on_from_approve_or_yes():
    named = {tool.name: tool.button for tool in vars(chat_tools).values() if getattr(tool, "button", "")}
    assert named["open_return"] == "return of order {order_id}"
    assert {name for name, words in named.items() if words[:1].isupper()} == set()
