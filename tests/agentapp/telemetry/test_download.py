"""The trace of one run as a file, for people who may see the run, in OTLP's JSON."""

import asyncio
import json
import uuid

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentapp import auth
from agentapp.models import Run
from tests.agentapp.long_runs import a_long_run
from tests.conftest import call, calls, says

LOOK = calls(call("l", "look_up", what="kettle"), text="I look.")


def read(response):
    assert response.headers["Content-Type"] == "application/json"
    return json.loads(b"".join(response.streaming_content))


def spans(document):
    return document["resourceSpans"][0]["scopeSpans"][0]["spans"]


@pytest.fixture
def run(clerk):
    return clerk.run(LOOK, says("Done."))


@pytest.fixture
def token(sam):
    return auth.issue_token(sam, "test", ["runs:read"], actor="system")[1]


def ask(run_id, secret):
    return Client().get(f"/api/v1/runs/{run_id}/otel", headers={"Authorization": f"Bearer {secret}"})


def test_a_program_reads_the_trace_of_a_run(run, token):
    found = spans(read(ask(run.pk, token)))
    assert [span["name"] for span in found] == [
        "invoke_agent clerk", "step 1", "chat scripted", "execute_tool look_up", "step 2", "chat scripted",
    ]  # fmt: skip
    assert {span["traceId"] for span in found} == {run.trace_id}
    root = found[0]["spanId"]
    assert len(root) == 16
    assert [span["parentSpanId"] for span in found if span["name"].startswith("step")] == [root, root]
    assert found[0]["startTimeUnixNano"].isdigit()


def test_it_is_what_a_collector_takes(run, token):
    document = read(ask(run.pk, token))
    # Names are those of the message; ids are hexadecimal there and base64 here.
    for span in spans(document):
        for name in ("traceId", "spanId", "parentSpanId"):
            span.pop(name, None)
    assert ParseDict(document, ExportTraceServiceRequest()).resource_spans[0].scope_spans[0].spans[0].name


def test_a_run_that_goes_on_is_told_up_to_now(clerk, token):
    run = clerk.run(LOOK, calls(call("p", "pay", account="ana", amount=5)))
    found = spans(read(ask(run.pk, token)))
    assert "approval pay" in [span["name"] for span in found]
    assert "execute_tool pay" not in [span["name"] for span in found]
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) for span in found)


def test_who_may_not_see_the_run_does_not_see_its_trace(run, otto, dana):
    secret = auth.issue_token(otto, "test", ["runs:read"], actor="system")[1]
    assert ask(run.pk, secret).status_code == 404
    assert ask(uuid.uuid4(), secret).status_code == 404
    narrow = auth.issue_token(dana, "test", ["approvals:read"], actor="system")[1]
    assert ask(run.pk, narrow).status_code == 403
    page = Client()
    page.force_login(otto)
    assert page.get(reverse("run_trace", args=[run.pk])).status_code == 404
    assert Client().get(reverse("run_trace", args=[run.pk])).status_code == 302


def test_a_person_takes_the_file_from_the_page_of_the_run(run, sam):
    page = Client()
    page.force_login(sam)
    html = page.get(reverse("run", args=[run.pk])).content.decode()
    assert reverse("run_trace", args=[run.pk]) in html
    assert run.trace_id in html
    response = page.get(reverse("run_trace", args=[run.pk]))
    assert response.headers["Content-Disposition"] == f'attachment; filename="{run.reference}-otel.json"'
    assert len(spans(read(response))) == 6


def test_what_was_said_is_not_in_the_file_unless_it_is_exported(clerk, token, settings):
    run = clerk.run(calls(call("l", "look_up", what="copper kettle")), says("A fine kettle."))
    assert "kettle" not in json.dumps(read(ask(run.pk, token)))
    settings.OTEL_CONTENT = True
    assert "copper kettle" in json.dumps(read(ask(run.pk, token)))


def test_a_run_of_two_thousand_steps_is_sent_in_pieces(sam, token):
    run = a_long_run(sam, 2000)
    with CaptureQueriesContext(connection) as asked:
        pieces = list(ask(run.pk, token).streaming_content)
    assert len(pieces) > 20
    assert max(map(len, pieces)) < 1_000_000
    assert len(spans(json.loads(b"".join(pieces)))) == 1 + 3 * 2000
    assert len(asked) < 100


@pytest.mark.django_db(transaction=True)
def test_a_server_that_awaits_sends_it_in_pieces_too(sam, token):
    run = a_long_run(sam, 150)

    async def pieces():
        response = await AsyncClient().get(f"/api/v1/runs/{run.pk}/otel", headers={"Authorization": f"Bearer {token}"})
        assert response.is_async
        made = [piece async for piece in response.streaming_content]
        # The thread that read the rows belongs to this loop, and ends with it.
        await sync_to_async(connections.close_all)()
        return made

    made = asyncio.run(pieces())
    assert len(made) > 2
    assert len(spans(json.loads(b"".join(made)))) == 1 + 3 * 150


def test_the_api_says_which_trace_a_run_is_in_and_takes_the_callers(clerk, sam):
    secret = auth.issue_token(sam, "test", ["runs:read", "runs:create"], actor="system")[1]
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"Authorization": f"Bearer {secret}", "traceparent": caller}
    body = {"agent": "clerk", "input": "Do it.", "script": [says("done")]}
    started = Client().post("/api/v1/runs", body, content_type="application/json", headers=headers)
    assert started.status_code == 201, started.content
    run = Run.objects.get(pk=started.json()["id"])
    assert (run.traceparent, started.json()["trace_id"]) == (caller, run.trace_id)
