"""What the inspector shows of a message, a model call and a tool call."""

import json
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp.executions import Proposal
from agentapp.messages import ToolCall, ToolResult
from agentapp.models import Step, ToolExecution
from approvals.models import Approval
from tests.agentapp.run_builder import RunBuilder, make_tool, proposal, told_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def mias(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def text(client: Client, run: RunBuilder, query: str = "") -> str:
    response = client.get(f"/runs/{run.id}/{query}")
    assert response.status_code == 200
    return response.content.decode()


def test_a_model_call_shows_its_words_as_a_claim_and_what_it_asked_for(mias: Client, sam: User, dana: User) -> None:
    page = text(mias, told_run(sam, dana), "?step=1")
    assert 'class="claim pre">I look the order up.' in page
    assert "a claim, not a fact" in page
    assert "Asked for <code>get_order</code>" in page
    assert '<span class="k">order_id</span><span class="p">: </span><span class="n">1001</span>' in page


def test_of_a_reply_that_came_piece_by_piece_it_says_when_it_began(mias: Client, sam: User, dana: User) -> None:
    run = told_run(sam, dana)
    assert "First token" not in text(mias, run, "?step=1")
    Step.objects.filter(run_id=run.id, number=1).update(first_token_seconds=0.42)
    assert "<dt>First token</dt><dd>0.42 s</dd>" in text(mias, run, "?step=1")


def test_a_call_shows_arguments_result_and_what_allowed_it(mias: Client, sam: User, dana: User) -> None:
    run = told_run(sam, dana)
    read = text(mias, run, "?step=1&call=0")
    assert "Reads run freely" in read
    assert "From outside" in read
    assert 'class="untrusted"' in read
    write = text(mias, run, "?step=2&call=0")
    execution = ToolExecution.objects.get(run_id=run.id, name="refund_payment")
    for shown in ("Dana Whitfield", "approved it", str(execution.idempotency_key), "Ask: A person decides.", "R-1"):
        assert shown in write
    assert "Our own system" in write


def test_the_risk_is_that_of_the_request_and_else_that_of_the_rule(mias: Client, sam: User, dana: User) -> None:
    run = told_run(sam, dana)
    execution = ToolExecution.objects.get(run_id=run.id, name="refund_payment")
    ToolExecution.objects.filter(run_id=run.id).update(ruling=execution.ruling | {"risk": "low"})
    Approval.objects.filter(pk=execution.approval_id).update(risk="high")

    def risks(query: str) -> list[tuple[str, str]]:
        page = text(mias, run, query)
        return re.findall(r"<dt>(Risk[^<]*)</dt><dd class=\"flex\">.*?</svg>([^<]+)</dd>", page)

    assert risks("?step=2&call=0") == [("Risk", "High"), ("Risk by the rule", "Low")]
    assert risks("?step=1&call=0") == [("Risk by the rule", "Low")]
    Approval.objects.filter(pk=execution.approval_id).update(risk="low")
    assert risks("?step=2&call=0") == [("Risk", "Low")]


def test_a_secret_argument_is_never_written(mias: Client, sam: User, dana: User) -> None:
    charge = make_tool("charge_card", "irreversible", secret_fields=["card"])
    run = RunBuilder(sam)
    (call,) = run.step("", proposal(charge, {"card": "4242424242424242", "amount": "1.00"}))
    edited = json.dumps({"amount": "2.00", "card": "5555555555554444"}, separators=(",", ":"))
    run.use(call, run.decide(run.ask(call)[0], dana, "edit", edited_text=edited))
    run.answer(call, ToolResult(data={"card": "5555555555554444", "receipt": {"card": ["5555555555554444"]}}))
    secrets = ("4242424242424242", "5555555555554444")
    for query in ("?step=1", "?step=1&call=0", "?view=conversation", "?view=events"):
        assert not [secret for secret in secrets if secret in text(mias, run, query)]
    for part in ("arguments", "ran", "result"):
        whole = mias.get(f"/runs/{run.id}/1/0/{part}.json").content.decode()
        assert not [secret for secret in secrets if secret in whole]
    page = text(mias, run, "?step=1&call=0")
    assert "<del>1.00</del>" in page
    assert "2.00" in page


def test_what_a_model_sent_instead_of_json_is_shown_unless_it_may_hold_a_secret(mias: Client, sam: User) -> None:
    run = RunBuilder(sam)
    refusal = ToolResult(status="refused", reason="malformed_arguments", message="Send one JSON object.")
    charge = make_tool("charge_card", "irreversible", secret_fields=["card"])
    run.step(
        "",
        Proposal(ToolCall("1", "get_order", '{"id": 10'), make_tool("get_order"), refusal=refusal),
        Proposal(ToolCall("2", "charge_card", '{"card": "hush'), charge, refusal=refusal),
    )
    assert "{&quot;id&quot;: 10" in text(mias, run, "?step=1&call=0")
    assert "hush" not in text(mias, run, "?step=1&call=1")
    assert "the arguments are not well-formed" in text(mias, run, "?step=1&call=1")


def test_text_from_outside_is_inert(mias: Client, sam: User, dana: User) -> None:
    attack = '<script>alert(1)</script><hx-partial hx-target="body"><b hx-get="/logout/">\u202e{{ x }}{% csrf_token %}'
    run = RunBuilder(sam, f"First line\n{attack}", title=attack, customer=attack)
    tool = make_tool("get_order")
    read, write = run.step(
        attack, proposal(tool, {attack: attack}), proposal(make_tool("send", "irreversible"), {"a": attack})
    )
    run.answer(read, ToolResult(data={attack: [attack, {"x": attack}]}, message=attack))
    (approval,) = run.ask(write, title=attack, reason=attack)
    run.decide(approval, dana, "reject", message=attack)
    for query in ("?step=0", "?step=1", "?step=1&call=0", "?step=1&call=1", "?view=conversation", "?view=events"):
        page = text(mias, run, query)
        assert "&lt;script&gt;alert(1)" in page
        for active in ("<script>alert", "<hx-partial", "<b hx-get", "\u202e"):
            assert active not in page, (query, active)


def test_a_long_text_is_cut_and_loaded_whole_on_demand(mias: Client, sam: User) -> None:
    run = RunBuilder(sam)
    (call,) = run.step("", proposal(make_tool("get_page")))
    run.answer(call, ToolResult(data={"body": "x" * 9000 + "<end>"}))
    page = text(mias, run, "?step=1&call=0")
    assert "9,005 characters in all" in page
    assert "&lt;end&gt;" not in page
    link = f"/runs/{run.id}/1/0/result.json"
    assert link in page
    whole = mias.get(link)
    assert json.loads(whole.content) == {"body": "x" * 9000 + "<end>"}
    assert whole["Content-Type"].startswith("text/plain")
    assert whole["X-Content-Type-Options"] == "nosniff"
    assert mias.get(f"/runs/{run.id}/1/0/metadata.json").status_code == 404
    assert mias.get(f"/runs/{run.id}/1/5/result.json").status_code == 404


def test_a_call_that_a_hook_changed_shows_what_the_model_had_asked_for_without_its_secrets(
    mias: Client, sam: User
) -> None:
    make_tool("charge_card", "irreversible", secret_fields=["card"])
    run = RunBuilder(sam)
    asked = ToolCall("a", "charge_card", '{"amount": "1.00", "card": "4242424242424242"}')
    made = proposal(make_tool("get_order"), {"order_id": 1001}, proposed=asked, changed_by=["shop.hooks.look_first"])
    run.step("", made)
    shown = text(mias, run, "?step=1&call=0")
    assert "Arguments, as a hook set them" in shown
    assert "The model had asked for <code>charge_card</code>" in shown
    assert "1001" in shown
    assert "1.00" in shown
    assert "Asked for <code>charge_card</code>" in text(mias, run, "?step=1")
    for query in ("?step=1", "?step=1&call=0", "?view=conversation", "?view=events"):
        assert "4242424242424242" not in text(mias, run, query)
    whole = mias.get(f"/runs/{run.id}/1/0/proposed.json").content.decode()
    assert "1.00" in whole
    assert "4242424242424242" not in whole


def test_an_artifact_is_shown_to_people_with_its_secrets_masked(mias: Client, sam: User) -> None:
    drawer = make_tool("draw", "read", secret_fields=["card"])
    run = RunBuilder(sam)
    (call,) = run.step("", proposal(drawer, {"what": "bars"}))
    run.answer(call, ToolResult(data="drawn", artifact={"file": "bars.svg", "card": "hush"}))
    page = text(mias, run, "?step=1&call=0")
    assert "not shown to the model" in page
    assert "bars.svg" in page
    assert "hush" not in page
    whole = mias.get(f"/runs/{run.id}/1/0/artifact.json").content.decode()
    assert "bars.svg" in whole
    assert "hush" not in whole
