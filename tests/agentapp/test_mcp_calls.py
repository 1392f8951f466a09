"""Calls to an MCP server's tool that are blocked: nothing goes where it may not, and the run's record says so."""

import dataclasses
import ipaddress
import socket
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import attempts
from agentapp.answers import answer
from agentapp.messages import ToolResult
from agentapp.models import Agent, Tool, ToolExecution, ToolSource
from agentapp.refreshing import refresh
from approvals import ledger
from approvals.models import Event, Rule
from tests import clerk_hooks
from tests.conftest import Clerk, call, calls, says
from tests.forks import fork
from tests.grants import a_grant
from tests.mcp_servers import Answer, Scripted, said


class Canary:
    """Listens where nobody may connect, and knows whether somebody did."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._socket = socket.create_server((host, port))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def close(self) -> bool:
        try:
            self._socket.accept()
        except BlockingIOError:
            return False
        finally:
            self._socket.close()
        return True


@pytest.fixture
def echo(clerk: Clerk, scripted: Scripted, settings: Any) -> Tool:
    """The clerk's only tool, offered by a server; it counts as a read."""
    settings.BREAKER_THRESHOLD = 100
    source = ToolSource.objects.create(name="scripted", kind="mcp", location=scripted.url)
    assert refresh(source, "test").problem == ""
    Tool.objects.filter(source=source).update(effect_class="read")
    tool = Tool.objects.get(source=source)
    clerk.agent.tools.set([tool])
    return tool


def lead_to(scripted: Scripted, status: int, where: str) -> None:
    def redirect(request: dict[str, Any]) -> Answer:
        return status, {"Location": where}, b""

    scripted.at["tools/call"] = redirect


def refusals(run: Any) -> list[dict[str, Any]]:
    found = Event.objects.filter(chain=ledger.run_chain(run.pk), type="outbound.refused")
    return [event.data for event in found]


def ask(clerk: Clerk) -> Any:
    return clerk.run(calls(call("a", "echo", text="x")), says("done"))


def told(execution: ToolExecution) -> str:
    return answer(ToolExecution.objects.select_related("tool").get(pk=execution.pk)).text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("http://127.0.0.1:{port}/mcp", "only its own address"),
        ("http://localhost:{port}/mcp", "localhost is not among the hosts"),
        ("http://169.254.169.254/latest/meta-data", "169.254.169.254 is not among the hosts"),
        ("file:///etc/passwd", "file is not a way to reach a server"),
        ("http://ana:secret@127.0.0.1/", "contains a user name or password"),
        ("http://[::1/", "not an address"),
    ],
)
def test_a_redirect_to_an_inner_address_is_refused_on_record(
    clerk: Clerk, scripted: Scripted, echo: Tool, status: int, where: str, why: str
) -> None:
    canary = Canary()
    lead_to(scripted, status, where.format(port=canary.port))
    run = ask(clerk)
    execution = clerk.execution(run, "a")
    [refused] = refusals(run)
    assert (execution.state, execution.result_status) == ("finished", "fatal_error")
    assert (refused["host"], refused["execution"]) == ("127.0.0.1", str(execution.pk))
    assert why in refused["why"]
    assert "was not allowed out" in told(execution)
    assert scripted.asked.count("tools/call") == 1
    assert not canary.close()


def test_a_private_address_that_is_among_the_hosts_is_refused_on_record(
    clerk: Clerk, scripted: Scripted, echo: Tool
) -> None:
    ToolSource.objects.filter(name="scripted").update(hosts=["127.0.0.1", "10.0.0.1"])
    lead_to(scripted, 307, "https://10.0.0.1/mcp")
    [refused] = refusals(ask(clerk))
    assert "10.0.0.1, which is not a public address" in refused["why"]


def test_a_name_that_changes_its_answer_is_refused_on_record(
    clerk: Clerk, scripted: Scripted, echo: Tool, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = Canary("127.0.0.3", scripted.port)
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network("127.0.0.1/32")]
    real, leads_to = socket.getaddrinfo, ["127.0.0.1"]

    def resolve(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        return real(leads_to[0] if host == "flip.example" else host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    server = f"http://flip.example:{scripted.port}/mcp"
    ToolSource.objects.filter(name="scripted").update(location=server)
    Tool.objects.filter(pk=echo.pk).update(wire={**echo.wire, "server": server})
    first = ask(clerk)
    leads_to[0] = "127.0.0.3"
    second = ask(clerk)
    assert clerk.execution(first, "a").result_status == "ok"
    [refused] = refusals(second)
    assert (refused["host"], refusals(first)) == ("flip.example", [])
    assert "127.0.0.3, which is not a public address" in refused["why"]
    assert not canary.close()


def test_a_source_that_leads_to_an_inner_address_is_refused_on_record(
    clerk: Clerk, scripted: Scripted, echo: Tool, settings: Any
) -> None:
    settings.OUTBOUND_NETWORKS = []
    run = ask(clerk)
    assert [refused["host"] for refused in refusals(run)] == ["127.0.0.1"]
    assert "tools/call" not in scripted.asked


def write(clerk: Clerk, echo: Tool, dana: User, **columns: Any) -> Any:
    """A run whose call counts as a write, approved and made."""
    Tool.objects.filter(pk=echo.pk).update(effect_class="irreversible", **columns)
    run = ask(clerk)
    clerk.decide(clerk.open(run)[0], dana)
    return clerk.drive(run)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (301, "outcome_unknown"),
        (302, "outcome_unknown"),
        (303, "outcome_unknown"),
        (307, "finished"),
        (308, "finished"),
    ],
)
@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("http://169.254.169.254/", "169.254.169.254 is not among the hosts"),
        ("https://10.0.0.1/mcp", "10.0.0.1, which is not a public address"),
        ("http://127.0.0.1:{port}/mcp", "only its own address"),
    ],
)
def test_a_write_that_is_sent_on_has_not_happened_or_is_for_a_person_to_find_out_and_is_on_record(
    clerk: Clerk, scripted: Scripted, echo: Tool, dana: User, status: int, state: str, where: str, why: str
) -> None:
    ToolSource.objects.filter(name="scripted").update(hosts=["127.0.0.1", "10.0.0.1"])
    canary = Canary()
    lead_to(scripted, status, where.format(port=canary.port))
    run = write(clerk, echo, dana)
    execution = clerk.execution(run, "a")
    [refused] = refusals(run)
    assert execution.state == state
    assert (refused["host"], refused["execution"]) == ("127.0.0.1", str(execution.pk))
    assert why in refused["why"]
    assert scripted.asked.count("tools/call") == 1
    assert not canary.close()


def test_a_write_that_is_sent_on_and_asked_again_with_its_key_keeps_the_refusal_on_record(
    clerk: Clerk, scripted: Scripted, echo: Tool, dana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_SECONDS", 0.0)
    ways = iter([(303, {"Location": "http://169.254.169.254/"}, b"")])

    def once(request: dict[str, Any]) -> Answer:
        return next(ways, None) or said(request, {"content": [{"type": "text", "text": "done"}]})

    scripted.at["tools/call"] = once
    run = write(clerk, echo, dana, idempotency="key", max_attempts=2)
    assert clerk.execution(run, "a").result_status == "ok"
    assert len(refusals(run)) == 1
    assert scripted.asked.count("tools/call") == 2


# --- What a server says failed ------------------------------------------------------------------


@pytest.fixture
def paid(scripted: Scripted) -> list[Any]:
    """What a server did although it reports a failure, as its library does whenever its code raises."""
    found: list[Any] = []

    def pay_and_fail(request: dict[str, Any]) -> Answer:
        found.append(request["params"]["arguments"])
        return said(request, {"content": [{"type": "text", "text": "ReadTimeout"}], "isError": True})

    scripted.at["tools/call"] = pay_and_fail
    return found


@pytest.fixture
def pay(echo: Tool) -> Tool:
    """The clerk's only tool, which counts as a write that a rule allows."""
    Tool.objects.filter(pk=echo.pk).update(effect_class="reversible")
    Rule.objects.create(name="let it", verdict="allow", tool=echo.name)
    return echo


def test_a_write_that_its_server_says_failed_is_done_again_by_a_person_alone(
    clerk: Clerk, pay: Tool, paid: list[Any], dana: User
) -> None:
    run = clerk.run(calls(call("a", "echo", text="100")), calls(call("b", "echo", text="100")), says("done"))
    assert clerk.execution(run, "a").result_status == "fatal_error"
    assert clerk.execution(run, "b").state == "waiting"
    [asked] = clerk.open(run)
    assert asked.reason == "The same call failed in this run, and its tool does not rule out that it took effect."
    assert paid == [{"text": "100"}]
    clerk.decide(asked, dana)
    clerk.drive(run)
    assert paid == [{"text": "100"}] * 2


def test_a_grant_does_not_let_a_write_be_done_again_that_its_server_says_failed(
    clerk: Clerk, pay: Tool, paid: list[Any], dana: User
) -> None:
    Rule.objects.all().delete()
    a_grant(clerk, dana, "echo", {"text": "100"})
    run = clerk.run(calls(call("a", "echo", text="100")), calls(call("b", "echo", text="100")), says("done"))
    assert clerk.execution(run, "b").state == "waiting"
    assert paid == [{"text": "100"}]


def test_a_hook_that_makes_another_result_of_an_error_does_not_let_the_call_be_done_again(
    clerk: Clerk, pay: Tool, paid: list[Any]
) -> None:
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"])
    plain = ToolResult(status="fatal_error", reason="tool_failure", message="It did not work.")
    clerk_hooks.DO["after_tool_use"] = lambda context: dataclasses.replace(context, result=plain)
    run = clerk.run(calls(call("a", "echo", text="100")), calls(call("b", "echo", text="100")), says("done"))
    assert clerk.execution(run, "a").message == "It did not work."
    assert clerk.execution(run, "b").state == "waiting"
    assert paid == [{"text": "100"}]


def test_a_write_whose_arguments_are_put_right_runs_as_the_rules_have_it(
    clerk: Clerk, pay: Tool, paid: list[Any]
) -> None:
    run = clerk.run(calls(call("a", "echo", text="one")), calls(call("b", "echo", text="1")), says("done"))
    assert run.state == "succeeded"
    assert paid == [{"text": "one"}, {"text": "1"}]


def test_a_fork_asks_about_a_write_that_its_server_said_failed(
    clerk: Clerk, pay: Tool, paid: list[Any], sam: User
) -> None:
    run = clerk.run(calls(call("a", "echo", text="100")), says("done"))
    forked = clerk.drive(fork(run, sam, 1))
    [asked] = clerk.open(forked)
    assert "does not rule out that it took effect" in asked.reason
    assert paid == [{"text": "100"}]
