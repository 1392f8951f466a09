"""The pages of evals in a browser: accessible, and a run is started, watched and compared with another."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp import evaluating, tasks
from agentapp.evals import results, runner, suites
from agentapp.models import EvalRun, EvalSuite
from approvals import rule_terms, rule_versions
from approvals.models import Rule
from tests.agentapp.evals.conftest import a_case
from tests.conftest import Clerk, call, calls, says
from tests.e2e.looks import look

pytestmark = pytest.mark.browser
REFUSED = "Failed to load resource: the server responded with a status of 422 (Unprocessable Content)"
type Browse = Callable[..., Page]


@pytest.fixture
def suite(clerk: Clerk) -> EvalSuite:
    made = suites.create("desk", "What the clerk does, and whom the gate asks about it.", "test")
    pays = a_case(
        "pays-only-when-somebody-has-looked",
        script=[calls(call("a", "pay", account="ana", amount=5)), says("done")],
        tools={"pay": {"result": "paid"}},
        people=[{"decide": "approve"}],
        expect={"routing": [{"tool": "pay", "verdict": "ask"}], "tools_called": ["pay"]},
    )
    looks = a_case(
        "looks-up-what-it-is-asked",
        script=[calls(call("a", "look_up", what="kettle")), says("done")],
        tools={"look_up": {"result": 7}},
        expect={"tools_called": ["look_up"]},
    )
    for case in (pays, looks, a_case("greets", severity="soft", expect={"answer_contains": ["Good morning"]})):
        suites.save_case(made, case, "test")
    return made


def ran(suite: EvalSuite, **more: Any) -> EvalRun:
    made = results.create(suite, evaluating.chosen(suite), **more)
    runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    return made


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["1440", "390"])
def test_every_page_of_evals_is_accessible_and_keeps_the_policy(
    browse: Browse, complaints: list[str], ada: User, clerk: Clerk, suite: EvalSuite, size: Any
) -> None:
    before = ran(suite)
    generous = Rule.objects.create(name="generous", tool="pay", verdict="allow", order=1, active=False)
    rule_versions.keep_draft(generous, {**rule_terms.terms_of(generous), "active": True}, ada, "test")
    after = ran(suite, baseline=before, rules=evaluating.supposed(["generous"], []))
    tools = list(clerk.agent.tools.all())
    clerk.agent.pk, clerk.agent.name = uuid.uuid4(), "clerk-next"
    clerk.agent.save(force_insert=True)
    clerk.agent.tools.set(tools)
    other = ran(suite, agent="clerk=clerk-next")
    cancelled = results.create(suite, evaluating.chosen(suite))
    results.cancel(cancelled.pk, "test")
    traces = [each.results.get(case="pays-only-when-somebody-has-looked").run_id for each in (after, other)]
    real = clerk.run(calls(call("a", "look_up", what="kettle")), says("done"))
    Rule.objects.create(name="two-look", tool="look_up", verdict="ask", approvals_needed=2)
    mocked = after.results.get(case="looks-up-what-it-is-asked").run_id
    paths = {
        "evals": "/evals/",
        "suite": "/evals/desk/",
        "eval": f"/evals/runs/{after.pk}/",
        "compare": f"/evals/runs/{after.pk}/compare/{before.pk}/",
        "compare-refused": f"/evals/runs/{after.pk}/compare/{cancelled.pk}/",
        "traces": f"/runs/compare/?a={traces[0]}&b={traces[1]}",
        "case": "/evals/desk/cases/greets/",
        "case-new": "/evals/desk/cases/",
        "case-of-run": f"/runs/{real.pk}/case/",
        "run": f"/runs/{real.pk}/",
        "mocked-run": f"/runs/{mocked}/",
        "mocked-runs": "/runs/?mocked=1",
        "what-if": "/changes/what-if/?people=2",
    }
    page = browse(ada, "/evals/", *size)
    wrong: dict[str, list[str]] = {}
    for name, path in paths.items():
        page.goto(path)
        for fold in page.locator("main details.fold").all():
            fold.locator("summary").click()
        if name == "run" and size[0] < 400:
            page.get_by_label("More actions").click()
            expect(page.get_by_role("link", name="Make a case")).to_be_visible()
        look(page, name, wrong, full_page=True)
    assert wrong == {}
    # The browser reports the page that refuses to compare, and nothing else.
    assert complaints == [REFUSED]


def test_a_suite_is_run_watched_and_compared(
    browse: Browse, sam: User, suite: EvalSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(suite)
    monkeypatch.setattr(tasks.run_eval, "apply_async", lambda *_, **__: None)
    page = browse(sam, "/evals/")
    page.get_by_role("link", name="desk").click()
    page.get_by_role("button", name="Run 3 cases").click()
    expect(page.get_by_text("0 of 3").first).to_be_visible()
    made = EvalRun.objects.get(state="queued")
    runner.go_on(made.pk, seconds=float("inf"))
    # The page refreshes by itself.
    expect(page.get_by_role("heading", name="Figures")).to_be_visible()
    page.get_by_role("navigation", name="Compare with an earlier eval").get_by_role("link").first.click()
    expect(page.get_by_text("Every case went as before.")).to_be_visible()
