"""What a tool declares beyond its schema fails where it is defined if it is wrong; otherwise it counts."""

import dataclasses
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, Field

from agentapp.tools import declared
from agentapp.tools.base import EffectLine, Tool, tool


def define(**options: Any) -> Tool:
    @tool(**{"effect": "irreversible", **options})
    def send(address: str, api_key: str, parcel: dict[str, list[str]] | None = None) -> str:
        """Send a letter."""
        return address

    return send


def defined(**options: Any) -> Tool:
    @tool(**options)
    def send(address: str, api_key: str) -> str:
        """Send a letter."""
        return address

    return send


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"secret": "api_key"}, r"'send' has secret='api_key', which is not a tuple of names"),
        ({"locked": "address"}, r"'send' has locked='address', which is not a tuple of names"),
        ({"pii": (1,)}, r"'send' has pii=\(1,\), which is not a tuple of names"),
        ({"secret": ("apikey",)}, "'send' marks 'apikey' as secret, .* it has address, api_key"),
        ({"pii": ("adress",)}, "'send' marks 'adress' as personal, .* it has address, api_key"),
        ({"locked": ("adress",)}, "'send' locks 'adress', which is not an argument; it has address, api_key"),
        ({"idempotency": "keys"}, "'send' has idempotency='keys', which is not one of none, key"),
        ({"trust": "trusted"}, "'send' has trust='trusted', which is not one of trusted_system, untrusted_content"),
        ({"effect": "rad"}, "'send' has effect='rad', which is not one of read, reversible"),
        ({"overlap": "never"}, "'send' has overlap='never'"),
        ({"response": "all"}, "'send' has response='all'"),
        ({"additional_arguments": "keep"}, "'send' has additional_arguments='keep'"),
        ({"max_attempts": "3"}, "'send' has a max_attempts that is not a whole number between 1 and 32767: '3'"),
        ({"timeout": True}, "'send' has a timeout that is not a whole number between"),
        ({"repeatable": "no"}, "'send' has repeatable='no', which is not true or false"),
        ({"cost": "1.0"}, "'send' has cost='1.0', which is not a number"),
        ({"owner": 7}, "'send' has owner=7, which is not text"),
        ({"effects": EffectLine("Sent")}, "'send' has effects that are not a tuple of EffectLine"),
        ({"limits": {"letters": "100"}}, "'send' has the limit 'letters': '100'"),
        ({"limits": ("letters",)}, "'send' has limits that are not a mapping"),
        ({"snapshot": lambda adress: {}}, "'send' has a function as snapshot that takes 'adress'"),
        ({"preview": lambda result: []}, "'send' has a function as preview that takes 'result'"),
        ({"preview": lambda: 0, "outcome": lambda r: {}}, "'send' has a function as outcome that takes 'r'"),
        ({"undo": lambda adress: {}, "undone_by": "fetch"}, "'send' has a function as undo that takes 'adress'"),
        ({"snapshot": lambda address, /: {}}, "'send' has a function as snapshot that takes 'address' by position"),
        ({"snapshot": "state"}, "'send' has snapshot='state', which is not a function"),
        ({"business_key": "send {adress}"}, "'send' has a wrong template. .* names 'adress', which is not an argument"),
        ({"business_key": "send {snapshot.to}", "snapshot": lambda address: {}}, "names 'snapshot.to', which is not"),
        ({"title": "Send to {adress}"}, "'send' has a wrong template. .* names 'adress'"),
        ({"sentence": "Send to {adress}."}, "'send' has a wrong template. .* names 'adress'"),
        ({"sentence": "Send to {snapshot.name}."}, "names 'snapshot.name', which is not"),
        ({"sentence": "Send {to"}, "'send' has a wrong template. .* cannot be read"),
        ({"effects": (EffectLine("Sent", "To {adress}"),)}, "'send' has a wrong template. .* names 'adress'"),
    ],
)  # fmt: skip
def test_an_option_that_means_nothing_is_an_error_that_names_the_tool(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=f"The tool {wrong}" if wrong.startswith("'send'") else wrong):
        defined(**options)


class Receipt(TypedDict):
    number: str


def given_back() -> Any:
    @tool(effect="read", secret=("number",))
    def find(address: str) -> list[Receipt]:
        """Find receipts."""
        return []

    return find


def test_what_is_named_may_stand_at_any_depth_in_results_and_in_what_is_looked_up() -> None:
    class_like: dict[str, Any] = {
        "type": "object",
        "properties": {"order": {"type": "object", "properties": {"iban": {"type": "string"}}}},
    }

    def close(order: dict[str, str]) -> str:
        return ""

    assert given_back().secret == ("number",)
    nested = tool(input_schema=class_like, description="Close.", secret=("iban",), business_key="close {order.iban}")
    assert nested(close).secret == ("iban",)
    assert defined(secret=("pin",), snapshot=lambda address: {"pin": 1}).secret == ("pin",)
    schema = {"type": "object", "properties": {"pin": {"type": "string"}}}
    assert defined(secret=["pin"], output_schema=schema).secret == ["pin"]
    assert define(pii=("anything",)).pii == ("anything",), "an object may have any field"


def test_a_mark_is_held_against_results_by_the_names_they_are_kept_under() -> None:
    class Found(BaseModel):
        email: str = Field(serialization_alias="eMail")

    def find(number: int) -> Found:
        """Find somebody."""
        return Found(email="ana@example.test")

    assert tool(pii={"email"})(find).pii == {"email"}
    with pytest.raises(ValueError, match="marks 'eMail' as personal"):
        tool(pii=("eMail",))(find)


def test_a_function_beside_a_tool_may_have_parameters_of_its_own_with_defaults() -> None:
    made = defined(snapshot=lambda address, at=3, **more: {"at": at})
    assert made.snapshot_of({"address": "a", "api_key": "k"}) == {"at": 3}


def test_a_schema_that_takes_whatever_it_is_given_leaves_names_alone() -> None:
    def forward(**said: str) -> str:
        return ""

    open_schema = {"type": "object", "properties": {}, "additionalProperties": True}
    made = tool(input_schema=open_schema, description="Forward.", locked=("x",), secret=("y",))(forward)
    assert (made.locked, made.secret) == (("x",), ("y",))


def test_a_mark_that_looks_like_an_argument_is_doubted_where_results_may_have_any_field() -> None:
    made = define(secret=("apikey",), pii=("iban",))
    assert declared.doubts(made) == ["send marks 'apikey', which is not one of its arguments; did you mean 'api_key'?"]
    assert declared.doubts(dataclasses.replace(made, secret=("api_key",))) == []
