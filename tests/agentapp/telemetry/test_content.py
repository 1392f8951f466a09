"""What was said is in spans only if the operator wants that, and secrets never are."""

import json

import pytest
from django.utils import timezone
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from agentapp import actions
from agentapp.models import Tool
from agentapp.telemetry import otlp
from agentapp.telemetry.spans import Span
from tests.conftest import call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5, memo="PIN 774411"), text="I pay Ana now.")


@pytest.fixture
def paid(clerk, dana):
    Tool.objects.filter(name="pay").update(secret_fields=["memo"])
    run = clerk.run(
        PAY, says("Ana has it; PIN 774411 was used."), input="Pay Ana, whose PIN is PIN 774411.", customer="Ana Alvarez"
    )
    clerk.decide(clerk.open(run)[0], dana, message="Go on, PIN 774411.")
    clerk.drive(run)
    return run


def test_by_default_nothing_that_was_said_and_nobody_is_in_a_span(paid, traced):
    said = traced(paid).said()
    for words in ("774411", "Ana", "ana", "Dana", "dana", "Go on", "Be exact", "paid 5"):
        assert words not in said


def test_where_the_operator_wants_it_spans_say_what_was_said(paid, traced, settings):
    settings.OTEL_CONTENT = True
    found = traced(paid)
    root, ran = found.one("invoke_agent clerk").attributes, found.one("execute_tool pay").attributes
    assert json.loads(root["gen_ai.input.messages"])[0]["parts"][0]["content"].startswith("Pay Ana")
    assert json.loads(root["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be exact."}]
    assert json.loads(ran["gen_ai.tool.call.arguments"])["account"] == "ana"
    assert ran["gen_ai.tool.call.result"].startswith("paid 5")
    chat = next(span for span in found.spans if span.name == "chat scripted").attributes
    [message] = json.loads(chat["gen_ai.output.messages"])
    assert message["parts"][0] == {"type": "text", "content": "I pay Ana now."}
    assert (message["parts"][1]["type"], message["parts"][1]["name"]) == ("tool_call", "pay")
    assert "Dana" in found.one("approval pay").attributes["countersign.approval.decided_by"]


def test_a_secret_argument_is_in_no_span_whatever_repeats_it(paid, traced, settings):
    settings.OTEL_CONTENT = True
    said = traced(paid).said()
    assert "774411" not in said
    assert "••••••" in said or "\\u2022" in said


def test_a_secret_of_a_call_that_was_not_disclosed_is_in_no_span(clerk, traced, settings):
    settings.OTEL_CONTENT = True
    Tool.objects.filter(name="pay").update(secret_fields=["memo"])
    clerk.agent.tools.remove(Tool.objects.get(name="pay"))
    run = clerk.run(PAY, says("I could not, with PIN 774411."))
    said = traced(run).said()
    assert "I could not" in said
    assert "774411" not in said


def test_a_secret_of_a_run_is_in_no_span_of_a_fork_whose_model_repeats_it(clerk, paid, sam, traced, settings):
    settings.OTEL_CONTENT = True
    fork = clerk.drive(actions.fork_run(paid.pk, actions.Fork(step=2, input="PIN 774411 again"), sam))
    assert fork.answer.endswith("774411 was used.")
    said = traced(fork).said()
    assert "was used" in said
    assert "774411" not in said


def test_a_text_that_is_not_unicode_loses_no_span():
    now = timezone.now()
    span = Span("1" * 32, "2" * 16, "", "one", now, now, {"a": "A lonely \ud800 and a \x00.", "b": ["\udfff"]})
    assert encode_spans([otlp.readable(span)]).resource_spans[0].scope_spans[0].spans[0].name == "one"
