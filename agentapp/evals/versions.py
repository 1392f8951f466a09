"""What an eval tested: the versions of everything that influences what agents do. Reads only."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from agentapp import release
from agentapp.agent_tools import may_ask
from agentapp.evals.cases import Case
from agentapp.hooks import find, source_of
from agentapp.models import Agent, EvalRun, Tool
from agentapp.toolset import snapshot_of
from approvals import rule_terms
from approvals.digest import canonical, sha256
from approvals.models import Rule
from approvals.supposing import DRAFTS, WITHOUT

SHOWN = 12
"""How many characters of a digest are shown: enough to tell two apart."""


def versions_of(eval_run: EvalRun, cases: Sequence[Case]) -> dict[str, Any]:
    """The versions by kind and name: of agents as configured and of those they may ask; of their models, prompts,
    guidelines and hooks; of tools, rules and cases; and of this product's code.
    """
    names = {eval_run.agent_for(case.agent) for case in cases}
    snapshots = _snapshots(names)
    tools = {tool for kept in snapshots.values() for tool in kept["tools"]}
    hooks = {path for kept in snapshots.values() for path in kept["hooks"]}
    return {
        "product": {"countersign": release.of_code()},
        "agents": {name: _digest(kept) for name, kept in snapshots.items()},
        "models": {
            name: (eval_run.model if name in names else "") or str(kept["model"]) for name, kept in snapshots.items()
        },
        "prompts": {name: _digest(kept["instructions"]) for name, kept in snapshots.items()},
        "guidelines": {
            f"{name}/{guideline['name']}": str(guideline["version"])
            for name, kept in snapshots.items()
            for guideline in kept.get("guidance", {}).get("guidelines", [])
        },
        "hooks": {path: _digest(source_of(path)) for path in sorted(hooks) if _runs(path)},
        "tools": dict(_tools(Tool.objects.filter(name__in=tools).order_by("name"))),
        "rules": _rules(eval_run.rules),
        "cases": {case.name: case.digest[:SHOWN] for case in cases},
    }


def _snapshots(names: Collection[str]) -> dict[str, dict[str, Any]]:
    """These agents as runs keep them, and every agent they may ask, directly or through others."""
    every = {agent.name: agent for agent in Agent.objects.order_by("name")}
    found: dict[str, dict[str, Any]] = {}
    level = sorted(name for name in names if name in every)
    while level:
        found |= {name: snapshot_of(every[name]) for name in level}
        asked = {
            other
            for name in level
            for other, agent in every.items()
            if agent.enabled and may_ask(name, found[name]["subagents"], found[name]["denied_subagents"], other)
        }
        level = sorted(asked - found.keys())
    return dict(sorted(found.items()))


def _runs(path: str) -> bool:
    """Whether a hook runs in mocked runs. One that is gone counts too: without it a run does not continue."""
    try:
        return find(path).in_mocked_runs
    except ValueError:
        return True


def _tools(tools: Iterable[Tool]) -> Iterable[tuple[str, str]]:
    """A tool's contract, and what an admin says about its safety."""
    for tool in tools:
        said = [tool.version, tool.effect_class, tool.approval_mode, tool.enabled, tool.trust]
        yield tool.name, _digest([str(each) for each in said])


def _rules(supposed: dict[str, Any]) -> dict[str, str]:
    """The rules in force with their terms and groups, or those that the eval supposes to be."""
    rows = Rule.objects.filter(active=True).order_by("name").prefetch_related("groups")
    terms = {rule.name: rule_terms.terms_of(rule) for rule in rows if rule.name not in supposed.get(WITHOUT, ())}
    terms |= {draft["rule"]: draft["terms"] for draft in supposed.get(DRAFTS, ())}
    return {name: rule_terms.digest_of(said)[:SHOWN] for name, said in terms.items() if said.get("active", True)}


def _digest(value: Any) -> str:
    return sha256(canonical(value))[:SHOWN]
