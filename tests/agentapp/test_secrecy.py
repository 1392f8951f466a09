"""A secret argument that its tool repeats is shown to nobody, on no page and by no operation of the API."""

import json
from typing import Any

import pytest
from django.test import Client

from agentapp import auth
from agentapp.models import ToolExecution
from agentapp.tools.base import ToolError, tool
from tests.conftest import call, calls, says

PIN = "veryhush-4711"


@tool(effect="read", secret=("pin",))
def unlock(pin: str, how: str) -> Any:
    """Unlock a door."""
    if how == "fails":
        raise ToolError(f"The pin {pin} is wrong.")
    if how == "object":
        return {"doors": [{"opened with": pin, pin: True}], "log": f"tried\n{pin}"}
    return f"unlocked with {pin}"


@pytest.fixture(params=["text", "object", "fails"])
def unlocked(request, clerk, offer) -> ToolExecution:
    offer(unlock)
    run = clerk.run(calls(call("u", "unlock", pin=PIN, how=request.param)), says("done"))
    return ToolExecution.objects.get(run=run)


def test_it_is_on_no_page_of_its_run(client, mia, unlocked):
    client.force_login(mia)
    page = f"/runs/{unlocked.run_id}/?step=1"
    paths = [
        f"{page}&call=0",
        f"{page}&call=0&tab=raw",
        page,
        f"{page}&tab=raw",
        f"/runs/{unlocked.run_id}/?step=2&tab=messages",
    ]
    paths += [f"/runs/{unlocked.run_id}/1/0/{part}.json" for part in ("result", "arguments", "ran")]
    answers = [client.get(path) for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    assert [path for path, answer in zip(paths, answers, strict=True) if PIN in answer.content.decode()] == []


def test_the_api_tells_it_to_nobody(mia, unlocked):
    _, secret = auth.issue_token(mia, "reading", [each for each in auth.SCOPES if each.endswith(":read")], "test")
    client = Client(headers={"authorization": f"Bearer {secret}"})
    paths = [f"tool-executions/{unlocked.pk}/result", f"runs/{unlocked.run_id}/trace", f"runs/{unlocked.run_id}/events"]
    answers = {path: client.get(f"/api/v1/{path}") for path in paths}
    assert answers[paths[0]].status_code == answers[paths[1]].status_code == 200
    assert [path for path, answer in answers.items() if PIN in json.dumps(answer.json(), ensure_ascii=False)] == []
