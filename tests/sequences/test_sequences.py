"""Whatever a model says, tools and hooks do and people decide, in whatever order: what must hold holds."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from agentapp import attempts, deadline, executor
from agentapp.models import Run
from approvals import ledger
from approvals.models import Rule
from tests.examples import examples
from tests.sequences import hooks, invariants, strategies
from tests.sequences import world as the_world
from tests.sequences.scene import TOOLS, Scene
from tests.wire import DIALECTS, Answer, ProviderServer, provider

__all__ = ["provider"]

pytestmark = pytest.mark.django_db(transaction=True)

HOOKED = {"hooks": ["tests.sequences.hooks.Planned"]}


@pytest.fixture
def scene(
    transactional_db: None, roles: Any, settings: Any, monkeypatch: pytest.MonkeyPatch, provider: ProviderServer
) -> Iterator[Scene]:
    settings.TOOL_MODULES = [the_world.__name__]
    settings.UNDO_HOLD_SECONDS = 0
    # Only the clock is replaced: what hangs runs out of time, and nobody waits between two attempts.
    monkeypatch.setattr(executor, "within", _within)
    monkeypatch.setattr(attempts, "FIRST_PAUSE_SECONDS", 0.0)
    yield Scene()
    assert ledger.verify()[1] is None


def _within(seconds: float, run: Any, arguments: dict[str, Any], context: Any) -> Any:
    hangs = arguments.get("how") in the_world.HANGS
    return deadline.within(0.02 if hangs else seconds, run, arguments, context)


def play(scene: Scene, deeds: list[tuple[str, int]], wire: ProviderServer | None = None) -> None:
    """Drive the run to rest, again after each deed, and finally to its end. Check throughout what must hold."""
    scene.rest()
    for what, number in deeds:
        if scene.do(what, number):
            scene.rest()
    invariants.check_rest(scene)
    scene.finish()
    invariants.check_rest(scene)
    scene.world.let_go()
    invariants.check_all(scene, wire)


@examples(100)
@given(drawn=strategies.any_plain)
def test_every_call_is_answered_once_nothing_runs_unapproved_and_the_run_ends_or_waits(
    scene: Scene, provider: ProviderServer, drawn: Any
) -> None:
    hooks.begin({})
    scene.begin({"clerk": drawn["agent"]}, drawn["nudges"])
    scene.start(drawn["script"], drawn["before"])
    play(scene, drawn["deeds"], provider)


@examples(60)
@given(drawn=strategies.any_hooked)
def test_hooks_change_what_is_asked_and_never_what_must_hold(scene: Scene, drawn: Any) -> None:
    hooks.begin(drawn["plan"])
    scene.begin({"clerk": {**drawn["agent"], **HOOKED, "hook_contract": drawn["contract"]}})
    scene.start(drawn["script"], drawn["before"])
    play(scene, drawn["deeds"])


@examples(40)
@given(drawn=strategies.any_thinking)
def test_a_model_without_functions_decides_in_its_text_and_meets_the_same_gate(
    scene: Scene, provider: ProviderServer, drawn: Any
) -> None:
    hooks.begin(drawn["plan"])
    react = {"driver": "react", "model": DIALECTS["openai"].model, "driver_settings": drawn["settings"]}
    scene.begin({"clerk": {**drawn["agent"], **react, **(HOOKED if drawn["plan"] else {})}})
    left = list(drawn["thoughts"])
    provider.answer_with = lambda question: _thinks(left)
    scene.start()
    play(scene, drawn["deeds"], provider)


def _thinks(left: list[Any]) -> Answer:
    dialect = DIALECTS["openai"]
    said = left.pop(0) if left else strategies.ANSWER
    if isinstance(said, int):
        return Answer(dialect.error("Not now.", "server_error"), status=said, headers={"Retry-After": "0"})
    return Answer(dialect.reply(said))


@examples(40)
@given(drawn=strategies.any_family)
def test_agents_that_ask_agents_wait_for_them_and_end_with_them(scene: Scene, drawn: Any) -> None:
    hooks.begin({})
    scene.begin(drawn["agents"])
    scene.start(None, drawn["before"])
    play(scene, drawn["deeds"])


def test_a_rule_that_allows_lets_run_what_it_names_and_nothing_else(scene: Scene) -> None:
    """So that the properties above are not those of a product that never runs anything."""
    hooks.begin({})
    scene.begin()
    scene.do("allow", TOOLS.index("label"))
    assert Rule.objects.get().tool == "label"
    label = {"id": "a", "name": "label", "arguments": {"text": "x"}}
    scene.start([{"tool_calls": [label]}, {"tool_calls": [{**label, "name": "undeclared"}]}, {"text": "done"}])
    scene.rest()
    assert [act.tool for act in scene.world.acts] == ["label"]
    play(scene, [("approve", 0)])
    assert [act.tool for act in scene.world.acts] == ["label", "undeclared"]
    assert Run.objects.order_by("pk").first().state == "succeeded"
