"""What an eval was run against: everything that influences what agents do is distinguished from its earlier state."""

from pathlib import Path
from typing import Any

import pytest

from agentapp import release
from agentapp.evals import results, suites
from agentapp.evals.versions import versions_of
from agentapp.models import Agent
from tests.agentapp.evals.conftest import a_case
from tests.conftest import Clerk, says
from tests.teams import Team

HOOKS = """
from agentapp.hooks import hook

@hook("before_tool_use", in_mocked_runs=True)
def guards(context):
    return {}

@hook("before_tool_use")
def mails(context):
    return None
"""


def versions(**case: Any) -> dict[str, Any]:
    suite = suites.create("desk", "", "test")
    one = a_case(**case)
    return versions_of(results.create(suite, [one]), [one])


def test_agents_that_may_be_asked_are_of_it_with_their_models_prompts_and_tools(clerk: Clerk) -> None:
    team = Team(clerk)
    asked = team.may_ask("refunds", says("never"), asks=("fraud",), model="openai:one")
    team.may_ask("fraud", says("never"))
    team.may_ask("off", says("never"), enabled=False)
    Agent.objects.filter(pk=clerk.agent.pk).update(subagents=["refunds"])
    Agent.objects.create(name="stranger", model="openai:other")
    before = versions()
    assert before["agents"].keys() == before["prompts"].keys() == {"clerk", "refunds", "fraud"}
    assert before["models"]["refunds"] == "openai:one"
    Agent.objects.filter(pk=asked.pk).update(instructions="Be generous.")
    after = versions()
    changed = {kind: [n for n in before[kind] if before[kind][n] != after[kind].get(n)] for kind in before}
    assert {kind for kind, names in changed.items() if names} == {"agents", "prompts"}
    assert changed["agents"] == changed["prompts"] == ["refunds"]


def test_a_model_that_is_asked_instead_is_of_whoever_runs_cases_alone(clerk: Clerk) -> None:
    Team(clerk).may_ask("refunds", says("never"), model="openai:one")
    case = a_case()
    made = results.create(suites.create("desk", "", "test"), [case], model="openai:new")
    assert versions_of(made, [case])["models"] == {"clerk": "openai:new", "refunds": "openai:one"}


def test_hooks_that_run_in_mocked_runs_are_of_it_by_what_their_modules_say(
    clerk: Clerk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for name, text in (("first_hooks", HOOKS), ("other_hooks", HOOKS.replace("{}", "None"))):
        (tmp_path / f"{name}.py").write_text(text)
        Agent.objects.filter(pk=clerk.agent.pk).update(hooks=[f"{name}.guards", f"{name}.mails", "gone.away"])
        found.append(versions()["hooks"])
    assert [set(hooks) for hooks in found] == [{f"{n}.guards", "gone.away"} for n in ("first_hooks", "other_hooks")]
    assert found[0]["first_hooks.guards"] != found[1]["other_hooks.guards"]
    assert found[0]["gone.away"] == found[1]["gone.away"] != ""


def test_the_code_of_the_product_is_of_it(clerk: Clerk, settings: Any, tmp_path: Path) -> None:
    assert versions()["product"] == {"countersign": release.of_code()}
    settings.BASE_DIR = tmp_path
    (tmp_path / "agentapp/evals").mkdir(parents=True)
    (tmp_path / "agentapp/evals/one.py").write_text("A = 1")
    seen = []
    for name, text in (("one.py", "A = 1"), ("one.py", "A = 2"), ("one.txt", "A = 3")):
        (tmp_path / "agentapp/evals" / name).write_text(text)
        release.of_code.cache_clear()
        seen.append(release.of_code())
    release.of_code.cache_clear()
    assert seen[0] != seen[1] == seen[2]
