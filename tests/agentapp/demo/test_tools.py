from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from agentapp.demo import data, shop, tools
from agentapp.demo.models import Email, Order, Refund, Ticket
from agentapp.tools import python_source, sentences
from agentapp.tools.base import Tool, ToolContext, ToolError
from agentapp.tools.schema import check_arguments
from approvals.digest import canonical

EXAMPLES: dict[str, dict[str, Any]] = {
    "get_order": {"order_id": "58213"},
    "get_customer": {"customer_id": "40117"},
    "search_orders": {"text": "kettle"},
    "read_ticket": {"ticket_id": "88213"},
    "search_policy": {"text": "damaged in transit"},
    "list_refunds": {"order_id": "58213"},
    "score_fraud": {"order_id": "58231"},
    "tag_ticket": {"ticket_id": "88213", "tags": ["damaged"]},
    "close_ticket": {"ticket_id": "88213", "code": "refunded"},
    "change_delivery_address": {"order_id": "58177", "address": "1 Canal Park, Duluth, MN 55802"},
    "issue_store_credit": {"customer_id": "40310", "amount": 15.0, "reason": "A chip in the lid"},
    "refund_payment": {"order_id": "58213", "amount": 214.5, "reason": "damaged_in_transit", "message": "Sorry!"},
    "send_email": {"customer_id": "40117", "subject": "Your kettle", "body": "Hello Ana"},
    "delete_customer_data": {"customer_id": "40601", "reason": "asked for it in ticket 88160"},
}
TOOLS = {name: getattr(tools, name) for name in EXAMPLES}


@dataclass
class Row:
    """A tool's templates, as in its row."""

    name: str
    input_schema: dict[str, Any]
    title_template: str
    sentence_template: str
    effects_template: list[dict[str, str]]
    button_template: str
    confirm_template: str


def row_of(tool: Tool) -> Row:
    lines = [{"icon": line.icon, "title": line.title, "detail": line.detail} for line in tool.effects]
    return Row(tool.name, tool.input_schema, tool.title, tool.sentence, lines, tool.button, tool.confirm)


def context(key: str = "key-1") -> ToolContext:
    return ToolContext(
        run_id="run",
        step=1,
        call_id="call",
        agent="support",
        conversation_id="",
        customer="",
        actor="user:1:sam",
        route="",
        idempotency_key=key,
        deadline=datetime.now(UTC),
    )


@pytest.fixture(autouse=True)
def kettles(db):
    data.load_shop()


def test_every_tool_of_the_shop_has_an_example():
    assert {tool.name for tool in python_source.modules()["agentapp.demo.tools"]} == set(EXAMPLES)


def test_the_tools_are_of_every_effect_class():
    assert {tool.effect for tool in TOOLS.values()} == {"read", "reversible", "compensable", "irreversible"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_fits_its_schema_and_runs(name):
    tool = TOOLS[name]
    assert check_arguments(tool.input_schema, EXAMPLES[name]) == []
    result = tool.run(EXAMPLES[name], context())
    assert result.status == "ok"
    canonical(result.data)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_template_of_a_tool_says_everything_for_its_example(name):
    tool = TOOLS[name]
    row, arguments = row_of(tool), EXAMPLES[name]
    snapshot = tool.snapshot_of(arguments)
    canonical(snapshot)
    texts = [sentences.title(row, arguments, snapshot), sentences.button(row, arguments, snapshot)]
    if tool.effect != "read":
        assert row.sentence_template
        texts += [piece["text"] for piece in sentences.sentence(row, arguments, snapshot)]
    texts += [line[part] for line in sentences.effects(row, arguments, snapshot) for part in ("title", "detail")]
    assert sentences.MISSING not in "".join(texts)
    assert "{" not in "".join(texts)


def test_a_refund_is_described_in_full():
    tool, arguments = tools.refund_payment, EXAMPLES["refund_payment"]
    row, snapshot = row_of(tool), tool.snapshot_of(arguments)
    assert sentences.title(row, arguments, snapshot) == "Refund $214.50 to Ana Pereira"
    assert sentences.button(row, arguments, snapshot) == "$214.50"
    pieces = sentences.sentence(row, arguments, snapshot)
    assert "".join(piece["text"] for piece in pieces) == (
        "The agent will return $214.50 to Visa ending 4417 for order 58213, as damaged in transit, "
        "and email Ana Pereira a confirmation."
    )
    assert "$214.50" in [piece["text"] for piece in pieces if piece["value"]]


def test_a_refund_honours_its_key():
    first = tools.refund_payment.run(EXAMPLES["refund_payment"], context())
    second = tools.refund_payment.run(EXAMPLES["refund_payment"], context())
    assert (first.data["made_before"], second.data["made_before"]) == (False, True)
    assert first.data["refund"] == second.data["refund"]
    assert Refund.objects.count() == 1


def test_an_over_refund_is_refused_with_what_is_possible():
    arguments = {**EXAMPLES["refund_payment"], "amount": 214.51}
    with pytest.raises(ToolError, match=r"at most 214\.50 can be refunded"):
        tools.refund_payment.run(arguments, context())
    assert not Refund.objects.exists()


def test_an_email_has_no_key_and_is_sent_each_time():
    assert tools.send_email.idempotency == "none"
    for _ in range(2):
        tools.send_email.run(EXAMPLES["send_email"], context())
    assert Email.objects.count() == 2


def test_a_snapshot_changes_when_the_world_does():
    refund, address = EXAMPLES["refund_payment"], EXAMPLES["change_delivery_address"]
    paid = tools.refund_payment.snapshot_of(refund)
    shop.refund("58213", 10, "changed_mind", "Hi", "another")
    assert tools.refund_payment.snapshot_of(refund) == {**paid, "refunded": 10.0}

    going = tools.change_delivery_address.snapshot_of(address)
    shop.change_address("58177", "5 Lighthouse Lane, Duluth, MN 55802")
    assert tools.change_delivery_address.snapshot_of(address) != going


def test_packing_an_order_changes_what_a_decision_rests_on():
    arguments = {"order_id": "58244", "address": "9 Barton Springs Road, Austin, TX 78704"}
    assert tools.change_delivery_address.snapshot_of(arguments)["state"] == "open"
    Order.objects.filter(pk="58244").update(packed_at=datetime.now(UTC))
    assert tools.change_delivery_address.snapshot_of(arguments)["state"] == "packed"


@pytest.mark.parametrize(
    "call",
    [
        lambda: tools.get_order("99999"),
        lambda: tools.get_customer("99999"),
        lambda: tools.read_ticket("99999"),
        lambda: tools.list_refunds("99999"),
        lambda: tools.refund_payment.snapshot_of({**EXAMPLES["refund_payment"], "order_id": "99999"}),
    ],
)
def test_a_tool_names_what_is_not_there(call):
    with pytest.raises(ToolError, match="99999"):
        call()


def test_search_finds_by_name_number_address_and_product():
    for text in ("pereira", "58213", "ana.pereira@mail.example", "glass"):
        assert "58213" in [order["order_id"] for order in tools.search_orders(text)]
    assert tools.search_orders("nobody at all") == []


def test_the_policy_is_found_by_subject():
    assert tools.search_policy("goods damaged in transit")[0]["section"] == "3.2"
    assert tools.search_policy("zeppelin") == []


def test_what_a_customer_wrote_is_marked_as_coming_from_outside():
    assert tools.read_ticket.trust == "untrusted_content"
    assert "<script>" in tools.read_ticket(Ticket.objects.get(order="58231").number)["body"]
