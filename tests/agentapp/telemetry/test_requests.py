"""Every request has an id: in its answer, its log lines, the page of a failure, and everything it leads to."""

import io
import json
import logging
import re

import pytest
from celery import current_app, shared_task
from django.test import Client, RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from agentapp import auth, logs
from agentapp.console import problems
from agentapp.telemetry import tasks
from agentapp.tools.base import tool
from tests.conftest import call, calls, says

ID = "01HX-request.42_abc"


@pytest.fixture
def lines():
    """What a handler of ours would write, as objects."""
    written: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record):
            written.append(self.format(record))

    handler = Kept()
    handler.setFormatter(logs.Json())
    root = logging.getLogger()
    root.addHandler(handler)
    yield lambda: [json.loads(line) for line in written]
    root.removeHandler(handler)


def test_an_answer_names_its_request(db):
    first, second = (Client().get("/healthz/").headers["X-Request-ID"] for _ in range(2))
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert first != second


def test_an_id_that_somebody_gave_a_request_is_kept(db):
    assert Client().get("/healthz/", headers={"X-Request-ID": ID}).headers["X-Request-ID"] == ID


@pytest.mark.parametrize("given", ["short", "x" * 129, "a b c d e f g h", "<script>alert(1)</script>", "é" * 20])
def test_an_id_that_could_do_harm_is_replaced(db, given):
    assert re.fullmatch(
        "[0-9a-f]{32}", Client().get("/healthz/", headers={"X-Request-ID": given}).headers["X-Request-ID"]
    )


@given(st.text())
def test_what_is_kept_breaks_no_line_no_header_and_no_page(text):
    kept = logs.safe_id(text)
    assert kept in ("", text)
    assert not set(kept) & set(" \r\n\t\"'<>&;\\=[]{}")


def test_a_refused_request_is_logged_with_its_id_and_who_sent_it(client, otto, lines):
    client.force_login(otto)
    client.get("/runs/0199f7a2-6d5e-7c3e-9a4b-8f1f6f0f2b11/", headers={"X-Request-ID": ID})
    [line] = [line for line in lines() if line["message"].startswith("Not Found")]
    assert (line["request"], line["user"], line["level"]) == (ID, f"user:{otto.pk}", "WARNING")
    assert line["run"] == "0199f7a2-6d5e-7c3e-9a4b-8f1f6f0f2b11"
    assert "Otto" not in json.dumps(line)


def test_a_program_is_named_by_its_person(db, sam, lines):
    _, secret = auth.issue_token(sam, "test", ["runs:read"], actor="system")
    path = "/api/v1/runs/0199f7a2-6d5e-7c3e-9a4b-8f1f6f0f2b11"
    Client().get(path, headers={"Authorization": f"Bearer {secret}", "X-Request-ID": ID})
    [line] = [line for line in lines() if line["message"].startswith("Not Found")]
    assert (line["request"], line["user"]) == (ID, f"user:{sam.pk}")
    assert secret not in json.dumps(lines())


def test_a_page_that_failed_names_the_request(settings):
    request = RequestFactory().get("/runs/")
    request.request_id = ID
    assert ID in problems.broken(request).content.decode()


def test_after_a_request_nothing_is_bound(db):
    Client().get("/healthz/")
    assert logs.ids() == {}


# --- From the request to the worker --------------------------------------------------------------


@shared_task
def say_who() -> None:
    logging.getLogger("tests.task").warning("At work.")


def test_a_task_that_a_request_led_to_says_so(lines):
    headers: dict[str, str] = {}
    with logs.bound(request=ID):
        tasks.send_along(headers=headers)
    say_who.apply(headers=headers, task_id="t-1")
    [line] = [line for line in lines() if line["message"] == "At work."]
    assert (line["request"], line["task"]) == (ID, "t-1")
    assert logs.ids() == {}


@pytest.mark.parametrize("form", [logs.Line, logs.Json])
def test_what_is_logged_while_a_run_is_driven_names_its_trace_and_nothing_else_does(clerk, offer, form):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form())

    @tool(effect="read")
    def talk() -> str:
        """Say something in the log."""
        logging.getLogger("tests.talk").warning("Talking.")
        return "Said."

    offer(talk)
    logging.getLogger("tests.talk").addHandler(handler)
    try:
        run = clerk.run(calls(call("t", "talk")), says("Done."))
        logging.getLogger("tests.talk").warning("Afterwards.")
    finally:
        logging.getLogger("tests.talk").removeHandler(handler)
    within, after = stream.getvalue().splitlines()
    named = f"trace={run.trace_id}" if form is logs.Line else f'"trace": "{run.trace_id}"'
    assert re.fullmatch("[0-9a-f]{32}", run.trace_id)
    assert (named in within, "trace" in after) == (True, False)


def test_a_message_is_sent_with_the_id(lines):
    sent = []
    with current_app.connection_for_write() as connection, logs.bound(request=ID):
        channel = connection.channel()
        original = channel.basic_publish
        channel.basic_publish = lambda message, *a, **k: (sent.append(message), original(message, *a, **k))
        with current_app.amqp.Producer(channel) as producer:
            say_who.apply_async(producer=producer)
    assert json.dumps(sent).count(ID) == 1


def test_an_id_from_the_broker_that_could_do_harm_is_not_taken(lines):
    say_who.apply(headers={"countersign_request": 'a b\n{"level": "forged"}'}, task_id="t-2")
    [line] = [line for line in lines() if line["message"] == "At work."]
    assert "request" not in line
