"""Threats of what never ends, and of configuration that is more than data, tested like those of `test_threats.py`."""

import gzip
import os
import shlex
import threading
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.test import Client

from agentapp import auth, budgets, conversations, customers, executor, limits, proposals, refreshing
from agentapp.api import rate
from agentapp.llm import bounded
from agentapp.messages import StopSignal
from agentapp.models import Agent, Run, Tool, ToolSource
from agentapp.reasons import StopReason
from agentapp.refused import Refused
from agentapp.tools import mcp_client, mcp_target, schema, sentences
from agentapp.tools.base import tool
from agentapp.transcript import StepRows
from approvals import conditions, digest
from tests import clerk_tools
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.security.scene import OPENAI, Scene, Threat, scene, tried
from tests.wire import Answer

__all__ = ["scene"]
ROUNDS = [calls(call(f"l{number}", "look_up", what=str(number))) for number in range(6)]


# --- What never ends ---------------------------------------------------------------------------


def a_tool_keeps_its_run_waiting(scene: Scene) -> bool:
    Tool.objects.filter(name="hang").update(timeout_seconds=1)
    clerk_tools.GATES["late"] = gate = threading.Event()
    late = threading.Timer(5, gate.set)
    late.start()
    try:
        run = scene.clerk.run(calls(call("h", "hang", name="late")), says("done"))
    finally:
        late.cancel()
        gate.set()
    return scene.clerk.execution(run, "h").result_status == "ok"


def nobody_watches_the_clock(scene: Scene) -> None:
    scene.patch.setattr(executor, "within", lambda seconds, function, *given: function(*given))


def one_reply_makes_forty_calls(scene: Scene) -> bool:
    wanted = [(f"l{number}", "look_up", {"what": str(number)}) for number in range(40)]
    scene.provided(Answer(OPENAI.reply("", wanted)), Answer(OPENAI.reply("done")))
    return len(effects_of("look_up")) == 40


def calls_of_a_reply_are_not_counted(scene: Scene) -> None:
    scene.patch.setattr(proposals, "MAX_CALLS_PER_STEP", 10**6)


def an_agent_goes_round_and_round(scene: Scene) -> bool:
    Agent.objects.update(max_iterations=3, on_limit=Agent.OnLimit.STOP)
    scene.clerk.run(*ROUNDS, says("done"))
    return len(effects_of("look_up")) > 3


def rounds_are_not_counted(scene: Scene) -> None:
    scene.patch.setattr(limits, "rounds_are_used_up", lambda run, steps: False)


def an_agent_takes_step_after_step(scene: Scene) -> bool:
    Agent.objects.update(max_steps=3)
    scene.clerk.run(*ROUNDS, says("done"))
    return len(effects_of("look_up")) > 3


def an_agent_uses_tokens_without_end(scene: Scene) -> bool:
    Agent.objects.update(max_tokens=45)  # of which each round uses fifteen
    scene.clerk.run(*ROUNDS, says("done"))
    return len(effects_of("look_up")) > 3


def not_limited_by(reason: StopReason) -> Callable[[Scene], None]:
    """All limits of a run remain, but this one."""

    def switch_off(scene: Scene) -> None:
        real = limits.reached

        def reached(run: Run, steps: Sequence[StepRows], worked_seconds: float) -> StopSignal | None:
            found = real(run, steps, worked_seconds)
            return None if found is not None and found.reason == reason else found

        scene.patch.setattr(limits, "reached", reached)

    return switch_off


def an_agent_spends_without_end(scene: Scene) -> bool:
    Agent.objects.update(max_cost=Decimal(3))
    Tool.objects.filter(name="look_up").update(cost_per_call=Decimal(1))
    run = scene.clerk.run(*ROUNDS, says("done"))
    return run.cost > 3


def nobody_keeps_books(scene: Scene) -> None:
    scene.patch.setattr(budgets, "_of_run", lambda *_: None)


def an_agent_spends_more_than_its_day_has(scene: Scene) -> bool:
    Agent.objects.update(max_daily_cost=Decimal(3), on_budget=Agent.OnBudget.STOP)
    Tool.objects.filter(name="look_up").update(cost_per_call=Decimal(1))
    for one_round in ROUNDS:
        scene.clerk.run(one_round, says("done"))
    return len(effects_of("look_up")) > 3


def nobody_keeps_the_books_of_a_day(scene: Scene) -> None:
    scene.patch.setattr(budgets, "_of_day", lambda *_: None)


def an_agent_works_on_and_on(scene: Scene) -> bool:
    Agent.objects.update(max_seconds=100)
    run = scene.clerk.start(*ROUNDS, says("done"))
    Run.objects.update(worked_seconds=100)
    return scene.clerk.drive(run).state == "succeeded"


def a_reply_fills_the_memory(scene: Scene) -> bool:
    run = scene.provided(Answer(OPENAI.reply("x" * (9 * 1024 * 1024))))
    return len(run.answer) > 8 * 1024 * 1024


def replies_have_no_bound(scene: Scene) -> None:
    scene.patch.setattr(bounded, "MAX_REPLY_BYTES", 10**10)


def a_packed_reply_fills_the_memory(scene: Scene) -> bool:
    packed = gzip.compress(b"".join(OPENAI.stream("x" * 1_000_000)))
    assert len(packed) < 20_000
    said = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    run = scene.provided(Answer(packed, headers=said))
    return len(run.answer) == 1_000_000


def packed_replies_are_unpacked(scene: Scene) -> None:
    async def only_by_size(response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = bounded._Bounded(response.stream, bounded.MAX_REPLY_BYTES, bounded.TOO_LONG)

    scene.patch.setattr(bounded, "_bound", only_by_size)


# --- Configuration that is a program -------------------------------------------------------------


def a_row_starts_a_command(scene: Scene) -> bool:
    canary = Path(scene.settings.DATA_DIR) / f"canary-{uuid.uuid4()}"
    source = ToolSource.objects.create(name="shell", kind="mcp", location=f"stdio:touch {canary}")
    refreshing.refresh(source, "test")
    mcp_client.close_all()
    found = canary.exists()
    canary.unlink(missing_ok=True)
    return found


def rows_choose_any_command(scene: Scene) -> None:
    def of_row(source: Any) -> mcp_target.Target:
        words = tuple(shlex.split(source.location.removeprefix(mcp_target.STDIO)))
        command = mcp_target.Command(words, "/", (("PATH", os.environ["PATH"]),), frozenset())
        return mcp_target.Target(source.name, command=command)

    scene.patch.setattr(mcp_target, "of_source", of_row)


def a_template_reaches_into_python(scene: Scene) -> bool:
    Tool.objects.filter(name="pay").update(title_template="Pay {account.__class__.__mro__}")
    _, approval = scene.asked()
    return "class 'object'" in approval.title


def templates_reach_attributes(scene: Scene) -> None:
    def look_up(names: dict[str, Any], path: str) -> Any:
        first, *others = path.split(".")
        value = names.get(first)
        for name in others:
            value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        return value

    scene.patch.setattr(sentences, "_look_up", look_up)


def a_pattern_goes_back_and_forth(scene: Scene) -> bool:
    # Compiled schemas are kept, so each is another.
    hostile = {"type": "string", "pattern": "^(?:(?:a|a)*(?=b)|a*)$", "title": str(uuid.uuid4())}
    # It fits, as only whoever looks to the end can know.
    return schema.problems_of(hostile, "a" * 20) == []


def patterns_may_take_for_ever(scene: Scene) -> None:
    scene.patch.setattr(schema, "MOST_BACKTRACKS", 10**9)


def a_condition_goes_round_and_round(scene: Scene) -> bool:
    hostile = "args.of.all(a, args.of.all(b, args.of.all(c, a + b + c > 0)))"

    try:
        return conditions.is_true(hostile, {"args": {"of": [1] * 60}})
    except conditions.TooMuch:
        return False


def conditions_may_take_for_ever(scene: Scene) -> None:
    scene.patch.setattr(conditions, "MOST_ROUNDS", 10**12)


# --- Flooding ------------------------------------------------------------------------------------


def a_token_floods_the_api(scene: Scene) -> bool:
    scene.settings.API_REQUESTS_PER_MINUTE = 5
    _, secret = auth.issue_token(scene.dana, "floods", ["approvals:read"], "test", issued_by=scene.dana)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    # More than two minutes together allow.
    return all(client.get("/api/v1/approvals").status_code == 200 for _ in range(11))


def requests_are_not_counted(scene: Scene) -> None:
    scene.patch.setattr(rate, "limit", lambda token: None)


def a_customer_floods_a_conversation(scene: Scene) -> bool:
    scene.settings.CUSTOMER_MESSAGES_PER_MINUTE = 3
    Agent.objects.update(driver="tool_calling", model=OPENAI.model)
    conversation, _ = customers.open_conversation("clerk", "chat-1", "40117", scene.clerk.starter, "test")
    for number in range(4):
        conversation.refresh_from_db()
        try:
            customers.write(customers.Access(conversation, scene.clerk.starter, "test"), f"Hello {number}")
        except Refused:
            return False
    return True


def messages_are_not_counted(scene: Scene) -> None:
    scene.patch.setattr(conversations, "said_lately", lambda conversation: 0)


THREATS = [
    Threat(15, "a tool keeps its run waiting", "tools have a deadline", a_tool_keeps_its_run_waiting,
           nobody_watches_the_clock),
    Threat(15, "one reply makes forty calls", "the calls of a reply are counted", one_reply_makes_forty_calls,
           calls_of_a_reply_are_not_counted),
    Threat(15, "an agent goes round and round", "rounds are counted", an_agent_goes_round_and_round,
           rounds_are_not_counted),
    Threat(15, "an agent takes step after step", "steps are counted", an_agent_takes_step_after_step,
           not_limited_by(StopReason.STEPS_LIMIT)),
    Threat(15, "an agent uses tokens without end", "tokens are counted", an_agent_uses_tokens_without_end,
           not_limited_by(StopReason.TOKEN_LIMIT)),
    Threat(15, "an agent spends without end", "a run has a budget", an_agent_spends_without_end, nobody_keeps_books),
    Threat(15, "an agent spends more than its day has", "its day has a budget", an_agent_spends_more_than_its_day_has,
           nobody_keeps_the_books_of_a_day),
    Threat(15, "an agent works on and on", "time is counted", an_agent_works_on_and_on,
           not_limited_by(StopReason.TIME_LIMIT)),
    Threat(15, "a reply fills the memory", "replies have a bound", a_reply_fills_the_memory, replies_have_no_bound),
    Threat(15, "a packed reply fills the memory", "what is packed stays packed", a_packed_reply_fills_the_memory,
           packed_replies_are_unpacked),
    Threat(17, "a row starts a command", "commands are what MCP_COMMANDS names", a_row_starts_a_command,
           rows_choose_any_command),
    Threat(17, "a template reaches into Python", "templates name keys of plain objects",
           a_template_reaches_into_python, templates_reach_attributes),
    Threat(17, "a pattern goes back and forth", "a pattern gives up", a_pattern_goes_back_and_forth,
           patterns_may_take_for_ever),
    Threat(17, "a condition goes round and round", "a condition gives up", a_condition_goes_round_and_round,
           conditions_may_take_for_ever),
    Threat(22, "a token floods the API", "tokens have a rate", a_token_floods_the_api, requests_are_not_counted),
    Threat(22, "a customer floods a conversation", "customers have a rate", a_customer_floods_a_conversation,
           messages_are_not_counted),
]  # fmt: skip
test_the_attack_fails, test_without_the_defence_it_succeeds = tried(THREATS)


class TestArgumentsWithoutAFloor:
    """Threat 15: each level is one more step of whatever reads them, and some of that cannot be interrupted."""

    @pytest.fixture
    def attack(self, scene: Scene, offer: Callable[..., Any]) -> Callable[[], bool]:
        @tool(effect="irreversible")
        def swallow(anything: Any) -> str:
            """Takes whatever it is given."""
            return "thank you"

        offer(swallow)
        deep = f'{{"anything": {"[" * 200}{"]" * 200}}}'

        def attack() -> bool:
            run = scene.clerk.run(calls({"id": "d", "name": "swallow", "arguments": deep}), says("done"))
            return bool(scene.clerk.open(run))

        return attack

    def test_the_attack_fails(self, attack: Callable[[], bool]) -> None:
        assert not attack()

    def test_without_the_defence_it_succeeds(self, scene: Scene, attack: Callable[[], bool]) -> None:
        scene.patch.setattr(digest, "_check_depth", lambda text: None)
        assert attack()
