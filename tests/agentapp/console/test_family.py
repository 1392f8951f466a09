"""Agents that asked agents, as the pages show them."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentapp.models import Run
from tests.conftest import call, calls, says
from tests.teams import Team, child_of


@pytest.fixture
def team(clerk: Any) -> Team:
    return Team(clerk)


@pytest.fixture
def family(team: Team) -> list[Run]:
    """Three runs, each asked by the one above; the lowest waits for a person."""
    team.may_ask("refunds", calls(call("a", "ask_ledger", input="Pay ana")), says("r"), asks=("ledger",))
    team.may_ask("ledger", calls(call("x", "pay", account="ana", amount=7)), {**says("l"), "usage": {"cost": 0.5}})
    team.run(calls(call("a", "ask_refunds", input="Refund ana")), says("done"))
    return list(Run.objects.order_by("depth"))


def html(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


def test_the_card_shows_who_asked_whom_each_with_its_run(client, team, family, dana) -> None:
    client.force_login(dana)
    [approval] = team.clerk.open(family[2])
    page = html(client, f"/approvals/{approval.pk}/")
    path = page[page.index('aria-label="Who asked whom"') :].partition("</nav>")[0]
    assert [path.index(f'/runs/{run.pk}/">{run.agent.name}</a>') for run in family] == sorted(
        path.index(f'/runs/{run.pk}/">{run.agent.name}</a>') for run in family
    )
    assert path.count("›") == 2
    assert 'aria-label="Who asked whom"' in html(client, f"/inbox/?id={approval.pk}")


def test_who_may_not_see_the_runs_reads_the_names_without_links(client, team, family, dana) -> None:
    for group in dana.groups.all():
        group.permissions.remove(Permission.objects.get(codename="view_run"))
    client.force_login(dana)
    [approval] = team.clerk.open(family[2])
    page = html(client, f"/approvals/{approval.pk}/")
    path = page[page.index('aria-label="Who asked whom"') :].partition("</nav>")[0]
    assert "<span>refunds</span>" in path
    assert "href" not in path


def test_a_request_of_the_first_agent_shows_no_path(client, team, dana) -> None:
    run = team.clerk.run(calls(call("p", "pay", account="ana", amount=1)), says("done"))
    client.force_login(dana)
    [approval] = team.clerk.open(run)
    assert "Who asked whom" not in html(client, f"/approvals/{approval.pk}/")


def test_the_trace_shows_the_run_that_answers_under_its_call(client, team, family, dana, mia) -> None:
    team.clerk.decide(team.clerk.open(family[2])[0], dana)
    team.drive_all(family[0])
    client.force_login(mia)
    page = html(client, f"/runs/{family[1].pk}/")
    row = page[page.index(f'href="/runs/{family[2].pk}/"') :].partition("</li>")[0]
    assert f"ledger, {family[2].reference}" in row
    assert "Succeeded" in row
    assert "$0.50" in row
    assert "$0.50 with the agents it asked" in page
    assert f"/runs/{family[2].pk}/" in html(client, f"/runs/{family[1].pk}/?step=1&call=0")


def test_a_run_says_who_asked_for_it_and_for_whom_it_waits(client, family, mia) -> None:
    client.force_login(mia)
    page = html(client, f"/runs/{family[1].pk}/")
    assert f'Asked by <a href="/runs/{family[0].pk}/">' in page
    assert "Waiting for another agent" in page
    assert "Asked by" not in html(client, f"/runs/{family[0].pk}/").partition("tr-head")[0]


def test_the_list_marks_runs_that_an_agent_asked_for(client, family, mia) -> None:
    client.force_login(mia)
    page = html(client, "/runs/")
    assert page.count("Asked by an agent") == 2
    assert page.count("Another agent") == 2


def test_the_trace_takes_as_many_queries_for_five_agents_as_for_one(client, team, mia) -> None:
    client.force_login(mia)
    counts = []
    for number in (1, 5):
        names = [f"desk{number}{place}" for place in range(number)]
        for name in names:
            team.may_ask(name, says("yes"))
        run = team.run(calls(*[call(name, f"ask_{name}", input="?") for name in names]), says("done"))
        assert child_of(run, names[0]).state == "succeeded"
        with CaptureQueriesContext(connection) as queries:
            html(client, f"/runs/{run.pk}/?step=0")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_who_sees_one_run_of_a_family_sees_all_and_nobody_else_sees_any(client, family, sam, otto) -> None:
    for user, status in ((sam, 200), (otto, 404)):
        client.force_login(user)
        assert {client.get(f"/runs/{run.pk}/").status_code for run in family} == {status}
