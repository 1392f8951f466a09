"""Calls of an imported service, from the model's proposal to what it reads, with a server built from the document."""

import base64
import ipaddress
import json
import socket
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp.answers import answer
from agentapp.importing import planning, writing
from agentapp.importing.planning import Given
from agentapp.models import Tool, ToolExecution, ToolSource
from approvals import ledger
from approvals.models import Event
from tests.conftest import Clerk, call, calls, says
from tests.service import Service, document

MAKE = "issues_create"


@pytest.fixture
def github(clerk: Clerk, settings: Any) -> Iterator[Service]:
    """A server for a part of GitHub's document, and the clerk with one tool to read and one to write."""
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network("127.0.0.0/24")]
    settings.BREAKER_THRESHOLD = 100
    service = Service(document("github"))
    offer(clerk, service, {"issues_get", MAKE})
    yield service
    service.close()


def offer(clerk: Clerk, service: Service, names: Collection[str], **more: Any) -> None:
    planned = planning.plan(Given(json.dumps(service.document), name="github", location=service.url, **more))
    picked = {one.key: one.choice for one in planned.proposed if one.tool.name in names}
    writing.write(planned, picked, "test")
    rows = Tool.objects.filter(source__name="github")
    rows.update(max_attempts=1)
    clerk.agent.tools.add(*rows)


ISSUE = {"owner": "ana", "repo": "shop", "body": {"title": "The kettle is broken"}}


def told(execution: ToolExecution) -> str:
    return answer(ToolExecution.objects.select_related("tool").get(pk=execution.pk)).text


def test_a_read_runs_and_its_answer_reaches_the_model(clerk: Clerk, github: Service) -> None:
    run = clerk.run(calls(call("a", "issues_get", owner="ana", repo="shop", issue_number=7)), says("done"))
    execution = clerk.execution(run, "a")
    assert (run.state, execution.result_status, execution.allowed_by) == ("succeeded", "ok", "read")
    [asked] = github.asked
    assert (asked.path, asked.problems) == ("/repos/ana/shop/issues/7", [])
    assert "untrusted content" in told(execution)
    assert '"status": 200' in told(execution)


def test_a_write_waits_for_a_person_runs_once_and_says_what_came_of_it(
    clerk: Clerk, github: Service, dana: User
) -> None:
    run = clerk.run(calls(call("a", MAKE, **ISSUE)), says("done"))
    [approval] = clerk.open(run)
    assert (run.state, github.asked) == ("waiting", [])
    assert approval.title == "Create an issue"
    clerk.decide(approval, dana)
    clerk.drive(run)
    execution = clerk.execution(run, "a")
    assert (run.state, execution.result_status) == ("succeeded", "ok")
    [asked] = github.asked
    assert (asked.method, asked.json, asked.problems) == ("post", ISSUE["body"], [])
    assert '"status": 201' in told(execution)


def test_arguments_that_do_not_fit_never_reach_the_server(clerk: Clerk, github: Service) -> None:
    run = clerk.run(
        calls(call("a", "issues_get", owner="ana", repo="shop", issue_number="seven")),
        calls(call("b", "issues_get", owner="ana")),
        calls(call("c", "issues_get", owner="..", repo="shop", issue_number=7)),
        says("done"),
    )
    reasons = [clerk.execution(run, id).reason for id in "abc"]
    assert reasons == ["invalid_arguments", "missing_arguments", "invalid_arguments"]
    assert github.asked == []


def declared_errors(name: str) -> list[tuple[str, str, str]]:
    """Every error that a document declares for an operation: (operation's id, method and path, status)."""
    found = []
    for path, item in document(name)["paths"].items():
        for method, operation in item.items():
            for status in operation.get("responses", {}) if isinstance(operation, dict) else ():
                if status.isdecimal() and int(status) >= 400:
                    found.append((operation["operationId"].replace("/", "_"), f"{method} {path}", status))
    return found


EXPECTED = {
    "400": ("refused", "invalid_arguments"), "422": ("refused", "invalid_arguments"),
    "401": ("fatal_error", "tool_failure"), "403": ("fatal_error", "tool_failure"),
    "429": ("retryable_error", "tool_failure"), "503": ("retryable_error", "tool_failure"),
    "500": ("retryable_error", "tool_failure"),
}  # fmt: skip


def test_every_status_that_a_document_declares_reaches_the_model_in_an_envelope(clerk: Clerk, github: Service) -> None:
    declared: dict[str, str] = {}
    for operation, key, status in declared_errors("github"):
        if key.startswith("get "):
            declared.setdefault(status, operation)
    assert len(declared) >= 6
    offer(clerk, github, set(declared.values()))
    for status, operation in declared.items():
        tool = Tool.objects.get(name=operation)
        body = json.dumps({"message": f"the server's own words for {status}"}).encode()
        github.answers = [(int(status), {"Content-Type": "application/json"}, body)]
        numbers = {"issue_number", "milestone_number", "comment_id", "event_id", "reaction_id"}
        arguments = {name: 1 if name in numbers else "x" for name in tool.input_schema["required"]}
        run = clerk.run(calls(call("a", operation, **arguments)), says("done"))
        execution = clerk.execution(run, "a")
        expected = EXPECTED.get(status, ("refused", "tool_failure"))
        assert (execution.result_status, execution.reason) == expected, (status, execution.message)
        assert f"the server's own words for {status}" in told(execution)
        assert "untrusted content" in told(execution)


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        (403, "finished", "tool_failure"), (404, "finished", "tool_failure"), (410, "finished", "tool_failure"),
        (422, "finished", "invalid_arguments"), (503, "outcome_unknown", "outcome_unknown"),
        (500, "outcome_unknown", "outcome_unknown"), (502, "outcome_unknown", "outcome_unknown"),
    ],
)  # fmt: skip
def test_a_write_that_fails_has_happened_not_happened_or_is_for_a_person_to_find_out(
    clerk: Clerk, github: Service, dana: User, status: int, state: str, reason: str
) -> None:
    github.answers = [(status, {"Content-Type": "application/json"}, b'{"message": "no"}')]
    run = clerk.run(calls(call("a", MAKE, **ISSUE)), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    execution = clerk.execution(run, "a")
    assert (execution.state, execution.reason) == (state, reason)
    assert len(github.asked) == 1


def test_a_write_with_a_key_is_asked_again_with_the_same_key(clerk: Clerk, github: Service, dana: User) -> None:
    Tool.objects.filter(name=MAKE).update(idempotency="key", max_attempts=2)
    github.answers = [(503, {"Retry-After": "0"}, b"")]
    run = clerk.run(calls(call("a", MAKE, **ISSUE)), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    keys = {one.headers["idempotency-key"] for one in github.asked}
    assert (len(github.asked), len(keys)) == (2, 1)
    assert clerk.execution(run, "a").result_status == "ok"


def test_an_answer_that_is_not_as_declared_is_a_failure_where_answers_are_checked(
    clerk: Clerk, github: Service, dana: User
) -> None:
    offer(clerk, github, {"issues_get", MAKE}, checks_answers=True)
    run = clerk.run(
        calls(call("a", "issues_get", owner="a", repo="b", issue_number=1), call("b", MAKE, **ISSUE)), says("x")
    )
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    read, write = clerk.execution(run, "a"), clerk.execution(run, "b")
    assert [(one.result_status, one.reason) for one in (read, write)] == [("fatal_error", "tool_result_invalid")] * 2
    assert "The call ran" in told(write)


# --- Where it may not go -----------------------------------------------------------------------


def refusals(run: Any) -> list[dict[str, Any]]:
    found = Event.objects.filter(chain=ledger.run_chain(run.pk), type="outbound.refused")
    return [event.data for event in found]


def move(server: str) -> None:
    """As if an administrator had configured it so."""
    ToolSource.objects.filter(name="github").update(location=server)
    for tool in Tool.objects.filter(name__in=["issues_get", MAKE]):
        Tool.objects.filter(pk=tool.pk).update(wire={**tool.wire, "server": server})


def read_issue(clerk: Clerk) -> Any:
    return clerk.run(calls(call("a", "issues_get", owner="a", repo="b", issue_number=1)), says("done"))


@pytest.mark.parametrize(
    "server",
    [
        "http://127.1.0.1", "http://2130771969", "http://0x7f.1.0.1", "http://[::1]", "http://[::ffff:127.1.0.1]",
        "http://[::ffff:7f01:1]", "https://[64:ff9b::a9fe:a9fe]", "http://169.254.169.254", "https://10.0.0.1",
        "https://[fd00::1]", "file:///etc/passwd?", "ftp://127.0.0.1",
    ],
)  # fmt: skip
def test_a_call_to_an_inner_address_is_refused_on_record(clerk: Clerk, github: Service, server: str) -> None:
    move(server)
    run = read_issue(clerk)
    execution = clerk.execution(run, "a")
    [refused] = refusals(run)
    assert (execution.state, execution.result_status) == ("finished", "fatal_error")
    assert refused["execution"] == str(execution.pk)
    assert refused["why"]
    assert "was not allowed out" in told(execution)
    assert github.asked == []


@pytest.mark.parametrize(
    "target",
    [
        "http://127.1.0.1:{port}/",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "http://[::1]:{port}/",
    ],
)
def test_a_redirect_to_an_inner_address_is_refused_on_record(clerk: Clerk, github: Service, target: str) -> None:
    github.answers = [(302, {"Location": target.format(port=github.port)}, b"")]
    run = read_issue(clerk)
    assert len(refusals(run)) == 1
    assert len(github.asked) == 1


def test_a_name_that_changes_its_answer_is_refused_on_record(
    clerk: Clerk, github: Service, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = Service(document("github"), "127.0.0.3")
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network("127.0.0.1/32")]
    real, told_first = socket.getaddrinfo, iter(["127.0.0.1", "127.0.0.3"])

    def resolve(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        return real(next(told_first) if host == "flip.example" else host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    try:
        move(f"http://flip.example:{github.port}")
        first, second = read_issue(clerk), read_issue(clerk)
    finally:
        canary.close()
    assert (refusals(first), len(refusals(second))) == ([], 1)
    assert (len(github.asked), canary.asked) == (1, [])


def test_a_write_that_is_not_let_out_has_not_happened(clerk: Clerk, github: Service, dana: User) -> None:
    move("http://169.254.169.254")
    run = clerk.run(calls(call("a", MAKE, **ISSUE)), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    assert clerk.execution(run, "a").result_status == "fatal_error"
    assert len(refusals(run)) == 1


@pytest.mark.parametrize("wanted", [True, False])
def test_a_source_that_wants_receipts_is_sent_one_with_what_people_approved(
    clerk: Clerk, github: Service, dana: User, wanted: bool
) -> None:
    ToolSource.objects.filter(name="github").update(approval_receipts=wanted)
    run = clerk.run(calls(call("r", "issues_get", owner="ana", repo="shop", issue_number=7), call("a", MAKE, **ISSUE)))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    clerk.drive(run)
    read, written = [asked.headers.get("x-approval-receipt") for asked in github.asked]
    assert read is None  # nobody was asked about it
    if not wanted:
        assert written is None
        return
    receipt = json.loads(base64.urlsafe_b64decode(written))
    assert (receipt["reference"], receipt["decision"], receipt["tool"]) == (approval.reference, "used", MAKE)
    assert receipt["deciders"][0]["user"] == f"user:{dana.pk}"
