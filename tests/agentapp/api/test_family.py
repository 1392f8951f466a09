"""Agents that asked agents, as programs read them."""

from typing import Any

import pytest

from agentapp.models import Run
from tests.conftest import call, calls, says
from tests.teams import Team


@pytest.fixture
def team(clerk: Any) -> Team:
    return Team(clerk)


@pytest.fixture
def family(team: Team) -> list[Run]:
    team.may_ask("refunds", calls(call("a", "ask_ledger", input="Pay ana")), says("r"), asks=("ledger",))
    team.may_ask("ledger", {**calls(call("x", "pay", account="ana", amount=7)), "usage": {"cost": 0.5}}, says("l"))
    team.run(calls(call("a", "ask_refunds", input="Refund ana")), says("done"))
    return list(Run.objects.order_by("depth"))


def test_a_run_says_which_run_asked_for_it_and_what_it_waits_for(client_of, family, mia) -> None:
    api = client_of(mia, "runs:read")
    answers = [api.get(f"/runs/{run.pk}").data for run in family]
    assert [(a["parent"], a["depth"]) for a in answers] == [(None, 0), (str(family[0].pk), 1), (str(family[1].pk), 2)]
    assert [a["waiting_for"] for a in answers] == ["subagent", "subagent", "approval"]


def test_a_trace_has_the_run_that_answers_a_call_and_what_all_of_them_cost(client_of, family, mia) -> None:
    trace = client_of(mia, "runs:read").get(f"/runs/{family[0].pk}/trace").data
    subrun = trace["steps"][0]["calls"][0]["subrun"]
    assert (subrun["id"], subrun["agent"], subrun["state"]) == (str(family[1].pk), "refunds", "waiting")
    assert (float(trace["family_cost"]), float(trace["run"]["usage"]["cost"])) == (0.5, 0)
    # Money is text, without an exponent.
    assert not {*trace["family_cost"], *trace["run"]["usage"]["cost"], *trace["run"]["budget_extra"]} - set(
        "0123456789."
    )


def test_an_approval_names_every_agent_from_the_first_to_the_one_that_asks(client_of, team, family, dana) -> None:
    [approval] = team.clerk.open(family[2])
    found = client_of(dana, "approvals:read").get(f"/approvals/{approval.pk}").data
    assert found["path"] == [{"agent": run.agent.name, "run": str(run.pk)} for run in family]
