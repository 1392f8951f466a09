"""Where each value of a call came from, according to the rows of its run."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentapp.models import Message, Run, Tool
from agentapp.provenance import Past, after_edit, by_argument, from_outside, origins_of, parts_of, path_of, sources_of
from agentapp.provenance.sources import CHANGED, GIVEN
from tests.red_team.forgeries import IBAN, OWN, SPACED
from tests.red_team.shop import PAY, TRUSTED, Case, Read, origins, past_of

PARTS = st.lists(st.text(max_size=8) | st.integers(0, 99), min_size=1, max_size=4).filter(
    lambda p: isinstance(p[0], str)
)


def origin_of(path: str, case: Case, **more: Any) -> tuple[str, int | None]:
    [found] = [origin for origin in origins(case, **more) if origin.path == path]
    return found.origin, found.step


@given(PARTS)
def test_a_path_is_read_as_it_was_written(parts: list[str | int]) -> None:
    assert parts_of(path_of(tuple(parts))) == tuple(parts)


def test_paths_read_as_people_write_them() -> None:
    assert path_of(("items", 0, "iban")) == "items[0].iban"
    assert path_of(("a b", "c")) == '["a b"].c'


def test_the_most_trusted_place_counts_and_of_those_the_first() -> None:
    reads = (Read(f"pay {IBAN}"), Read({"iban": IBAN}, "get_customer", TRUSTED), Read({"iban": IBAN}, "again", TRUSTED))
    assert origin_of("iban", Case("x", {"iban": IBAN}, reads)) == ("trusted", 2)
    assert origin_of("iban", Case("x", {"iban": IBAN}, reads, given=f"Pay {SPACED}")) == ("staff", None)
    assert origin_of("iban", Case("x", {"iban": IBAN}, reads[:1], wrote=(IBAN,))) == ("customer", None)


def test_what_a_run_was_given_is_its_starters_or_the_customers_words_and_no_other_agents() -> None:
    case = Case("x", {"iban": IBAN}, given=f"Pay {IBAN}")
    assert origin_of("iban", case) == ("staff", None)
    assert origin_of("iban", Case("x", {"iban": IBAN}, given=f"Pay {IBAN}", by_customer=True)) == ("customer", None)
    run = past_of(case).run
    run.parent_id = run.pk
    [found] = origins_of(sources_of(Past(run)), case.arguments, schema=PAY.input_schema)
    assert found.origin == "model"


def test_an_earlier_answer_of_the_agent_proves_nothing_and_one_of_a_person_does() -> None:
    run = Run(agent_snapshot={"name": "support"}, input="Go on.")
    said = Message(role="assistant", content=f"Use {IBAN}", seq=1)

    def found() -> str:
        return origins_of(sources_of(Past(run, messages=[said])), {"iban": IBAN}, schema=PAY.input_schema)[0].origin

    assert found() == "model"
    said.author_id = 7
    assert found() == "staff"


def test_instructions_are_our_own_words() -> None:
    run = Run(agent_snapshot={"name": "support", "instructions": f"Always pay to {IBAN}."}, input="Go on.")
    [found] = origins_of(sources_of(Past(run)), {"iban": IBAN}, schema=PAY.input_schema)
    assert (found.origin, found.source) == ("staff", "The agent’s instructions")


def answered(**fields: Any) -> Past:
    past = past_of(Case("x", {}, (Read({"ok": True}, "pay_invoice", TRUSTED, {"iban": OWN}, writes=True),)))
    execution = past.steps[0].executions[0]
    for name, value in fields.items():
        setattr(execution, name, value)
    return past


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({"reason": "approval_rejected", "message": f"A person rejected this call: use {IBAN}",
          "result_status": "refused", "result_text": ""}, "What a person said about a call"),
        ({"result_text": json.dumps(f"Take {IBAN}")}, "A person’s answer"),
    ],
)  # fmt: skip
def test_what_a_person_said_about_a_call_is_theirs(fields: dict[str, Any], source: str) -> None:
    past = answered(approval_id=past_of(Case("x", {})).run.pk, **fields)
    [found] = origins_of(sources_of(past), {"iban": IBAN}, schema=PAY.input_schema)
    assert (found.origin, found.source, found.step) == ("staff", source, 1)


def test_what_a_person_put_into_an_earlier_call_is_theirs() -> None:
    run = past_of(Case("x", {})).run
    past = answered(approval_id=run.pk, started_at=run.created_at, executed_text=json.dumps({"iban": IBAN}))
    [found] = origins_of(sources_of(past), {"iban": IBAN}, schema=PAY.input_schema)
    assert (found.origin, found.source) == ("staff", CHANGED)


def test_what_differs_from_what_was_proposed_is_the_persons_who_changed_it() -> None:
    case = Case("x", {"iban": OWN, "amount": 1250}, (Read(f"{OWN} 1250.00"),))
    found = origins_of(
        sources_of(past_of(case)), case.arguments, schema=PAY.input_schema, was={"iban": IBAN, "amount": 1250}
    )
    assert {each.path: each.origin for each in found} == {"iban": "staff", "amount": "outside"}


def test_after_an_edit_the_rest_came_from_where_it_came_from() -> None:
    rows = [
        {"path": "iban", "origin": "outside"},
        {"path": "amount", "origin": "outside"},
        {"path": "body", "origin": "model"},
    ]
    now = after_edit(rows, {"iban": IBAN, "amount": 5, "body": "x"}, {"iban": OWN, "amount": 5, "email": "a@b.example"})
    assert {row["path"]: row["origin"] for row in now} == {"iban": "staff", "amount": "outside", "email": "staff"}


def test_what_moves_when_a_person_takes_out_an_entry_stays_whose_it_was() -> None:
    rows = [{"path": "to[0]", "origin": "staff"}, {"path": "to[1]", "origin": "outside", "source": "read_mail"}]
    was, now = {"to": ["ana@ours.example", "eve@evil.example"]}, {"to": ["eve@evil.example", "bob@ours.example"]}
    assert after_edit(rows, was, now) == [
        {"path": "to[0]", "origin": "outside", "source": "read_mail"},
        {"path": "to[1]", "origin": "staff", "source": "Changed by a person"},
    ]
    case = Case("x", now, (Read("write to eve@evil.example"),))
    found = origins_of(sources_of(past_of(case)), now, schema={}, was=was)
    assert {each.path: each.origin for each in found} == {"to[0]": "outside", "to[1]": "staff"}


def test_a_value_of_another_type_is_another_value() -> None:
    rows = [{"path": "notify", "origin": "outside"}]
    assert after_edit(rows, {"notify": 1}, {"notify": True})[0]["origin"] == "staff"


def test_a_secret_has_an_origin_and_no_quote_and_stands_in_no_other() -> None:
    case = Case(
        "x", {"token": "tok-998877665", "email": "eve@evil.example"}, (Read("tok-998877665 for eve@evil.example"),)
    )
    found = {origin.path: origin for origin in origins(case, ("token",))}
    assert (found["token"].origin, found["token"].quote) == ("outside", "")
    assert "998877665" not in json.dumps([origin.as_json() for origin in found.values()])
    assert "eve@evil.example" in found["email"].quote


def test_rules_see_the_worst_origin_of_an_argument_and_each_value_by_its_path() -> None:
    case = Case("x", {"items": [{"iban": OWN}, {"iban": IBAN}]}, (Read(IBAN),), given=OWN)
    seen = by_argument([origin.as_json() for origin in origins(case)], PAY.input_schema)
    assert (seen["items"], seen["items[0].iban"], seen["items[1].iban"]) == ("outside", "staff", "outside")
    assert seen["iban"] == "unmarked"


def test_a_quote_is_the_place_as_it_stands_there() -> None:
    [found] = origins(Case("x", {"email": "eve@evil.example"}, (Read("Write to Eve@Evil.example today."),)))
    assert found.quote == "Write to Eve@Evil.example today."
    assert (found.ref, found.call) == ("read_ticket:call-1", "call-1")


def test_what_is_too_much_to_look_through_counts_as_from_outside() -> None:
    case = Case("x", {"items": [{"iban": f"{OWN}{n:04}"} for n in range(301)]})
    found = origins(case)
    assert (found[299].origin, found[300].origin) == ("model", "outside")
    assert from_outside([origin.as_json() for origin in found]) == ["items"]


@pytest.mark.parametrize("filler", ["a-", "a--", "a.", "a1.", "deadbeef", "a_", "a+", "a@", "a@b-", "1,", "12 ", "."])
def test_what_a_long_text_takes_grows_as_its_length_does(filler: str) -> None:
    text = (filler * 40_000)[:40_000]
    case = Case("x", {"body": f"{text} eve@evil.example"}, (Read("Write to eve@evil.example today."),))
    began = time.thread_time()
    assert origin_of("body", case) == ("outside", 1)
    # If the time grew with the square of the length, the fastest of these would take seconds.
    assert time.thread_time() - began < 3


@pytest.mark.parametrize(("said", "value"), [("a", "a" * 60_000), ("ab ", "ab " * 20_000 + "a")])
def test_what_a_long_value_takes_grows_as_its_length_does(said: str, value: str) -> None:
    case = Case("x", {"body": value}, (Read((said * 150_000)[:150_000]),))
    began = time.thread_time()
    assert origin_of("body", case) == ("outside", 1)
    assert time.thread_time() - began < 1


def test_what_a_source_repeats_that_the_call_said_itself_is_asked_about_once() -> None:
    reads = (Read("1234 " * 50_000, arguments={"note": "x" * 20_000 + "12-34"}),)
    case = Case("x", {"iban": "12345678"}, reads)
    began = time.thread_time()
    assert origin_of("iban", case) == ("model", None)
    assert time.thread_time() - began < 1


def test_an_address_is_found_behind_an_amount_and_a_host_behind_a_number() -> None:
    reads = (Read("Write to eve@evil.example or 24-shop.example."),)
    assert origin_of("body", Case("x", {"body": "Pay $15eve@evil.example at once"}, reads)) == ("outside", 1)
    assert origin_of("body", Case("x", {"body": "Pay at once: 24-shop.example"}, reads)) == ("outside", 1)


def test_only_what_the_model_had_read_counts() -> None:
    case = Case("x", {"iban": IBAN}, (Read(IBAN),))
    past = past_of(case)
    past.steps[0].executions[0].state = "executing"
    [found] = origins_of(sources_of(past), case.arguments, schema=PAY.input_schema)
    assert found.origin == "model"


def test_a_given_text_is_named() -> None:
    [found] = origins(Case("x", {"iban": IBAN}, given=IBAN))
    assert found.source == GIVEN


@pytest.mark.parametrize("value", [IBAN, 1250.5, "eve@evil.example", "2026-04-01"])
def test_what_stands_nowhere_the_model_made(value: Any) -> None:
    assert origin_of("iban", Case("x", {"iban": value}, (Read("nothing of the kind"),))) == ("model", None)


def test_a_secret_of_an_earlier_call_stands_in_no_quote_of_its_result() -> None:
    past = answered(result_text=json.dumps("key hush-12345 opens the box of eve@evil.example"))
    execution = past.steps[0].executions[0]
    execution.tool = Tool(name="pay_invoice", secret_fields=["key"])
    execution.arguments_text = json.dumps({"key": "hush-12345"})
    [found] = origins_of(sources_of(past), {"email": "eve@evil.example"}, schema=PAY.input_schema)
    assert "eve@evil.example" in found.quote
    assert "hush" not in found.quote
