from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.looked_at import MAX_CHARS, looked_at
from approvals.masking import MASK
from approvals.policy import Call

CALL = Call(
    tool="refund", effect_class="irreversible", agent="support", customer="ana",
    arguments={"amount": 214.5, "to": {"iban": "DE1", "bank": "N"}, "items": [{"sku": "a"}], "note": "x" * 1000},
)  # fmt: skip
NOTHING = object()


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("", {}),
        ("args.amount > 100.0", {"args.amount": 214.5}),
        ('args["amount"] > 100.0 && args.amount < 500.0', {"args.amount": 214.5}),
        ("args.to.bank == 'N'", {"args.to.bank": "N"}),
        ("has(args.discount)", {"args.discount": NOTHING}),
        ("args.items.exists(item, item.sku == 'args.amount')", {"args.items": '[{"sku":"a"}]'}),
        ("customer.startsWith('args.amount')", {"customer": "ana"}),
        ('tool.name == "refund" || agent.name == "support"', {"tool.name": "refund", "agent.name": "support"}),
        ("my.args.amount > 1", {}),
        ("args.to.iban == 'DE1'", {"args.to.iban": MASK}),
        ("size(args.to) > 0", {"args.to": f'{{"bank":"N","iban":"{MASK}"}}'}),
    ],
)
def test_it_names_what_the_condition_looked_at_and_what_stood_there(condition: str, found: dict[str, Any]) -> None:
    values = looked_at(condition, CALL.names(), secret=("iban",))
    assert {item["name"]: item.get("value", NOTHING) for item in values} == found


def test_a_long_value_is_cut() -> None:
    [value] = looked_at("args.note != ''", CALL.names())
    assert len(value["value"]) == MAX_CHARS


@given(st.text(max_size=300))
def test_whatever_a_condition_says_a_secret_is_never_told(condition: str) -> None:
    names = {"args": {"pin": "s3cr3t-value", "in": {"pin": "s3cr3t-value"}}}
    for text in (condition, f"args.pin {condition}", f"args.in {condition}", f"args{condition}"):
        assert "s3cr3t-value" not in repr(looked_at(text, names, secret=("pin",)))
