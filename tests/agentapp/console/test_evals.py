"""The pages of evals: suites, their results, two side by side, and cases made of runs."""

import re
import uuid
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import actions, evaluating, tasks
from agentapp.evals import files, results, runner, suites
from agentapp.models import EvalCase, EvalRun, EvalSuite, Run, Tool
from approvals import ledger, rule_terms, rule_versions
from approvals.ids import uuid7
from approvals.models import Rule, RuleVersion
from tests.agentapp.evals.conftest import a_case
from tests.clerk_tools import EFFECTS
from tests.conftest import Clerk, call, calls, says
from tests.races import few_tries, race


@pytest.fixture
def suite(clerk: Clerk) -> EvalSuite:
    made = suites.create("desk", "What the clerk does.", "test")
    suites.save_case(made, a_case("greets", script=[says("Hello")], expect={"no_tools": True}), "test")
    pays = a_case(
        "pays",
        script=[calls(call("a", "pay", account="ana", amount=5)), says("done")],
        tools={"pay": {"result": "paid"}},
        people=[{"decide": "approve"}],
        expect={"routing": [{"tool": "pay", "verdict": "ask"}]},
    )
    suites.save_case(made, pays, "test")
    return made


def ran(suite: EvalSuite, **more: Any) -> EvalRun:
    made = results.create(suite, evaluating.chosen(suite), **more)
    runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    return made


def page(client: Client, user: User, url: str, status: int = 200) -> str:
    client.force_login(user)
    response = client.get(url)
    assert response.status_code == status, response
    return response.content.decode()


# --- Looking -------------------------------------------------------------------------------------


def test_who_may_not_look_at_evals_sees_none_of_their_pages(suite, client, dana, otto):
    made = ran(suite)
    for user in (dana, otto):
        for url in (
            "/evals/", "/evals/desk/", "/evals/desk/cases/pays/", f"/evals/runs/{made.pk}/",
            f"/evals/runs/{made.pk}/compare/{made.pk}/", f"/runs/{made.results.first().run_id}/case/",
        ):  # fmt: skip
            assert "What the clerk does" not in page(client, user, url, 403)
        assert 'href="/evals/"' not in page(client, user, "/runs/")


def test_suites_stand_with_what_came_of_them_last(suite, client, mia):
    assert "never run" in page(client, mia, "/evals/")
    made = ran(suite)
    shown = page(client, mia, "/evals/")
    assert made.reference in shown
    assert "Passed" in shown
    assert 'href="/evals/"' in page(client, mia, "/runs/")


def test_an_eval_shows_each_case_with_its_reasons_and_its_run_the_worst_first(suite, client, mia):
    Rule.objects.create(name="generous", tool="pay", verdict="allow", order=1)
    made = ran(suite)
    shown = page(client, mia, f"/evals/runs/{made.pk}/")
    assert "pay: expected verdict ask, got allow" in shown
    assert shown.index('id="case-pays"') < shown.index('id="case-greets"')
    run = made.results.get(case="pays").run
    assert f'href="/runs/{run.pk}/"' in shown
    assert "Approval routing" in shown
    assert "every 2s" not in shown


def test_an_eval_that_goes_on_refreshes_itself(suite, client, mia):
    made = results.create(suite, evaluating.chosen(suite))
    shown = page(client, mia, f"/evals/runs/{made.pk}/")
    assert "every 2s" in shown
    assert "0 of 2" in shown


def test_two_evals_stand_side_by_side(suite, client, mia):
    before = ran(suite)
    Rule.objects.create(name="generous", tool="pay", verdict="allow", order=1)
    after = ran(suite, baseline=before)
    shown = page(client, mia, f"/evals/runs/{after.pk}/compare/{before.pk}/")
    assert "Regressed" in shown
    assert "pay: allowed instead of asked everybody who may decide" in shown
    assert "1 other case went as before" in shown
    assert "generous" in shown
    assert "the baseline" in page(client, mia, f"/evals/runs/{after.pk}/")
    assert f"/evals/runs/{after.pk}/compare/{before.pk}/" in page(client, mia, "/evals/desk/")


def test_an_eval_that_did_not_finish_stands_beside_none(suite, client, mia, sam):
    before = ran(suite)
    cancelled = results.create(suite, evaluating.chosen(suite))
    results.cancel(cancelled.pk, "test")
    for one, other in ((before, cancelled), (cancelled, before)):
        shown = page(client, mia, f"/evals/runs/{one.pk}/compare/{other.pk}/", 422)
        assert "These two cannot be compared." in shown
        assert f"{cancelled.reference} was cancelled" in shown
        assert "Regressed" not in shown
    assert "Compare with" not in page(client, mia, f"/evals/runs/{cancelled.pk}/")
    EvalRun.objects.filter(pk=before.pk).update(baseline=cancelled)
    assert f"/evals/runs/{before.pk}/compare/{cancelled.pk}/" not in page(client, mia, "/evals/desk/")
    client.force_login(sam)
    answer = client.post("/evals/desk/run/", {"baseline": str(cancelled.pk)})
    assert (answer.status_code, "was cancelled" in answer.content.decode()) == (422, True)


def test_figures_stand_beside_those_of_their_name(suite, client, mia):
    before, after = ran(suite), ran(suite)
    tokens = {"total": 4711, "p50": None, "p95": None}
    EvalRun.objects.filter(pk=before.pk).update(metrics={"tokens": tokens, "of_before": 3})
    shown = page(client, mia, f"/evals/runs/{after.pk}/compare/{before.pk}/")
    [row] = re.findall(r"<tr><td>Tokens.*?</tr>", shown, re.DOTALL)
    assert '<td class="r num">4711</td><td class="r num">45</td>' in row
    [row] = re.findall(r"<tr><td>of before.*?</tr>", shown, re.DOTALL)
    assert '<td class="r num">3</td><td class="r num">-</td>' in row
    [row] = re.findall(r"<tr><td>Tool selection.*?</tr>", shown, re.DOTALL)
    assert '<td class="r num">-</td>' in row


def test_only_cases_that_there_still_are_are_linked(suite, client, mia):
    before = ran(suite)
    Rule.objects.create(name="generous", tool="pay", verdict="allow", order=1)
    after = ran(suite)
    pages = (f"/evals/runs/{after.pk}/", f"/evals/runs/{after.pk}/compare/{before.pk}/")
    there = 'href="/evals/desk/cases/pays/"'
    assert all(there in page(client, mia, url) for url in pages)
    suites.remove_case(EvalCase.objects.get(name="pays"), "test")
    for url in pages:
        shown = page(client, mia, url)
        assert there not in shown
        assert "pays" in shown


def test_what_a_case_or_a_run_says_is_text_on_the_pages(suite, client, mia):
    nasty = "<script>alert(1)</script>"
    suites.save_case(suite, a_case("nasty", description=nasty, expect={"answer_contains": [nasty]}), "test")
    made = ran(suite)
    for url in ("/evals/desk/", "/evals/desk/cases/nasty/", f"/evals/runs/{made.pk}/"):
        assert nasty not in page(client, mia, url)


# --- Running -------------------------------------------------------------------------------------


def test_a_suite_is_run_by_workers_for_who_may_run_evals(suite, client, sam, mia, monkeypatch):
    nudged: list[str] = []
    monkeypatch.setattr(tasks.run_eval, "apply_async", lambda args, **_: nudged.append(args[0]))
    assert "Run 2 cases" not in page(client, mia, "/evals/desk/")
    assert client.post("/evals/desk/run/").status_code == 403
    assert "Run 2 cases" in page(client, sam, "/evals/desk/")
    response = client.post("/evals/desk/run/", {"agent": "", "model": "", "baseline": ""})
    made = EvalRun.objects.get()
    assert response.url == f"/evals/runs/{made.pk}/"
    assert nudged == [str(made.pk)]
    assert (made.starter, made.total) == (sam, 2)


def test_one_case_is_run_from_its_page_and_links_to_its_trace(suite, client, sam, monkeypatch):
    monkeypatch.setattr(tasks.run_eval, "apply_async", lambda args, **_: runner.go_on(uuid.UUID(args[0])))
    client.force_login(sam)
    client.post("/evals/desk/run/", {"case": "pays"})
    made = EvalRun.objects.get()
    assert (made.state, made.verdict, made.total) == ("finished", "passed", 1)
    run = made.results.get().run
    assert f'href="/runs/{run.pk}/"' in page(client, sam, "/evals/desk/cases/pays/")
    assert EFFECTS == []


@pytest.mark.parametrize(("url", "case"), [("/evals/desk/", {}), ("/evals/desk/cases/pays/", {"case": "pays"})])
def test_a_form_that_is_sent_twice_begins_one_eval(suite, client, sam, monkeypatch, url, case):
    nudged: list[str] = []
    monkeypatch.setattr(tasks.run_eval, "apply_async", lambda args, **_: nudged.append(args[0]))
    [key] = re.findall(r'name="request_key" value="([^"]+)"', page(client, sam, url))
    answers = [client.post("/evals/desk/run/", {"request_key": key, **case}) for _ in range(2)]
    made = EvalRun.objects.get()
    assert [answer.url for answer in answers] == [f"/evals/runs/{made.pk}/"] * 2
    assert nudged == [str(made.pk)]
    other = client.post("/evals/desk/run/", {"request_key": key, "model": "openai:other", **case})
    assert (other.status_code, "has already started an eval" in other.content.decode()) == (422, True)
    assert f'name="request_key" value="{key}"' not in other.content.decode()
    assert EvalRun.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_posts_of_one_form_at_once_begin_one_eval(suite, sam):
    for _ in range(few_tries()):
        key = uuid7()
        made = race(*[partial(evaluating.start_eval, suite, sam, key=key)] * 2)
        assert made == [EvalRun.objects.get(pk=key)] * 2


def test_what_cannot_be_run_is_said_and_begins_nothing(suite, client, sam):
    client.force_login(sam)
    for wrong in ({"agent": "clerk=nobody"}, {"case": "other"}, {"baseline": str(uuid.uuid4())}):
        response = client.post("/evals/desk/run/", wrong)
        assert response.status_code == 422
        assert "Nothing was started." in response.content.decode()
    assert EvalRun.objects.count() == 0


@pytest.mark.parametrize("field", ["agent", "model", "baseline", "case", "draft", "without"])
def test_what_no_browser_sends_begins_no_eval(suite, client, ada, monkeypatch, field):
    monkeypatch.setattr(tasks.run_eval, "apply_async", lambda args, **_: None)
    client.force_login(ada)
    assert client.post("/evals/desk/run/", {field: "clerk\0=clerk"}).status_code < 500


def test_an_eval_is_cancelled_by_who_may_run_them(suite, client, sam, mia):
    made = results.create(suite, evaluating.chosen(suite))
    client.force_login(mia)
    assert client.post(f"/evals/runs/{made.pk}/cancel/").status_code == 403
    client.force_login(sam)
    client.post(f"/evals/runs/{made.pk}/cancel/")
    made.refresh_from_db()
    assert made.state == "cancelled"


def test_drafts_are_tried_by_who_may_view_rules(suite, client, ada, sam, monkeypatch):
    monkeypatch.setattr(tasks.run_eval, "apply_async", lambda args, **_: runner.go_on(uuid.UUID(args[0])))
    rule = Rule.objects.create(name="payments", tool="pay", verdict="ask")
    drafted = rule_versions.keep_draft(rule, {**rule_terms.terms_of(rule), "verdict": "deny"}, ada, "test")
    assert isinstance(drafted, RuleVersion)
    before = ran(suite)
    assert "payments" not in page(client, sam, "/evals/desk/")
    answer = client.post("/evals/desk/run/", {"draft": "payments"})
    assert (answer.status_code, "right to view rules" in answer.content.decode()) == (403, True)
    assert 'name="draft" value="payments"' in page(client, ada, "/evals/desk/")
    answer = client.post("/evals/desk/run/", {"draft": "payments", "baseline": str(before.pk)})
    made = EvalRun.objects.get(baseline=before)
    assert answer.url == f"/evals/runs/{made.pk}/"
    shown = page(client, ada, answer.url)
    assert "with the draft of payments" in shown
    assert "pay: expected verdict ask, got deny" in shown
    for url in ("/evals/desk/", f"/evals/runs/{made.pk}/compare/{before.pk}/"):
        assert "with the draft of payments" in page(client, ada, url)
    answer = client.post("/evals/desk/run/", {"without": ["payments", "other"]})
    assert (answer.status_code, "no rule &#x27;other&#x27; in force" in answer.content.decode()) == (422, True)
    assert 'name="without" value="payments" checked' in answer.content.decode()
    rule.refresh_from_db()
    assert rule.verdict == "ask"


# --- Writing -------------------------------------------------------------------------------------


def test_a_case_is_changed_as_text_and_what_is_wrong_is_said_with_its_line(suite, client, ada, mia):
    url = "/evals/desk/cases/greets/"
    assert "<textarea" not in page(client, mia, url)
    assert client.post(url, {"text": "x"}).status_code == 422
    client.force_login(ada)
    text = files.written(EvalCase.objects.get(name="greets").document)
    assert client.post(url, {"text": text.replace("Do it.", "Do it now.")}).status_code == 302
    assert EvalCase.objects.get(name="greets").document["input"] == "Do it now."
    response = client.post(url, {"text": text.replace("kind: positive", "kind: odd")})
    assert response.status_code == 422
    assert "Line 2, kind: " in response.content.decode()
    assert EvalCase.objects.get(name="greets").kind == "positive"


def test_cases_that_stand_in_files_are_not_changed_here(suite, client, ada):
    EvalSuite.objects.update(directory="/somewhere")
    url = "/evals/desk/cases/greets/"
    assert "<textarea" not in page(client, ada, url)
    text = files.written(EvalCase.objects.get(name="greets").document)
    response = client.post(url, {"text": text.replace("Do it.", "Other.")})
    assert (response.status_code, "change them there" in response.content.decode()) == (422, True)


def test_a_case_made_of_a_run_goes_as_the_run_went(suite, client, clerk, ada, dana):
    run = clerk.run(
        calls(call("a", "look_up", what="x"), text="I look."),
        calls(call("b", "pay", account="ana", amount=5)),
        says("Paid."),
        input="Pay Ana.",
        title="Pay Ana",
        customer="Ana",
    )
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    run = clerk.drive(run)
    assert run.state == "succeeded"
    shown = page(client, ada, f"/runs/{run.pk}/case/")
    assert "<textarea" in shown
    made = client.post(f"/runs/{run.pk}/case/", {"suite": "from-life", "text": _text_of(client, run)})
    row = EvalCase.objects.get(suite__name="from-life")
    assert made.url == f"/evals/from-life/cases/{row.name}/"
    assert (row.made_of, row.document["customer"]) == (run, "A customer")
    assert row.document["people"] == [{"decide": "approve", "tool": "pay"}]
    effects = len(EFFECTS)
    assert ran(row.suite).verdict == "passed"
    assert len(EFFECTS) == effects
    shown = page(client, ada, f"/runs/{run.pk}/")
    menu = shown.split('<details class="menu phone-only">')[1].split("</details>")[0]
    assert f'href="/runs/{run.pk}/case/"' in menu, "on a phone it is in the menu"
    assert shown.count(f'href="/runs/{run.pk}/case/"') == 2


def _text_of(client: Client, run: Run) -> str:
    import html
    import re

    shown = client.get(f"/runs/{run.pk}/case/").content.decode()
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", shown, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


def test_secrets_and_personal_data_are_masked_in_a_case_made_of_a_run(suite, client, clerk, ada):
    Tool.objects.filter(name="look_up").update(secret_fields=["what"], pii_fields=["found"])
    run = clerk.run(
        calls(call("a", "look_up", what="swordfish-4711"), text="I look for swordfish-4711."),
        says("done"),
        input="The word is swordfish-4711.",
    )
    text = _text_of_page(client, ada, run)
    assert "swordfish" not in text
    assert "look_up" in text


def _text_of_page(client: Client, user: User, run: Run) -> str:
    client.force_login(user)
    return _text_of(client, run)


@pytest.mark.parametrize(
    ("replies", "mocks"),
    [
        ([calls(call("a", "fail", how="never")), says("done")], {"fail": [{"error": "there is no such thing"}]}),
        ([calls(call("a", "fail", how="later")), says("done")], None),
        ([calls(call("a", "no_such_tool")), says("done")], None),
        ([{"tool_calls": [{"id": "a", "name": "look_up", "arguments": "{broken"}]}, says("done")], None),
        ([says("Only words.")], None),
    ],
)
def test_whatever_came_of_a_run_its_case_goes_the_same_way(suite, client, clerk, ada, monkeypatch, replies, mocks):
    monkeypatch.setattr("agentapp.attempts.FIRST_PAUSE_SECONDS", 0)
    run = clerk.run(*replies)
    client.force_login(ada)
    made = client.post(f"/runs/{run.pk}/case/", {"suite": "from-life", "text": _text_of(client, run)})
    assert made.status_code == 302, made.content.decode()
    made_of = ran(EvalSuite.objects.get(name="from-life"))
    assert [outcome.reasons for outcome in runner.outcomes(made_of)] == [[]]


def test_no_case_is_made_of_a_run_that_goes_on_or_is_erased_or_that_one_may_not_see(suite, client, clerk, ada, sam):
    going = clerk.run(calls(call("a", "pay", account="ana", amount=5)), says("done"))
    assert "has not ended" in page(client, ada, f"/runs/{going.pk}/case/")
    ended = clerk.run(says("done"))
    with ledger.transaction():
        from agentapp import erasing

        erasing.take_away(ended.pk, "test", {})
    assert "is erased" in page(client, ada, f"/runs/{ended.pk}/case/")
    assert client.post(f"/runs/{ended.pk}/case/", {"suite": "x", "text": "y"}).status_code == 422


def test_what_is_no_case_begins_no_suite(suite, client, clerk, ada):
    run = clerk.run(says("done"))
    client.force_login(ada)
    assert client.post(f"/runs/{run.pk}/case/", {"suite": "fresh", "text": "name: x"}).status_code == 422
    assert not EvalSuite.objects.filter(name="fresh").exists()


def test_when_a_run_is_erased_the_cases_made_of_it_go_and_what_evals_have_kept_of_them(suite, client, clerk, ada):
    run = clerk.run(says("My secret diary."), input="Dear diary")
    client.force_login(ada)
    client.post(f"/runs/{run.pk}/case/", {"suite": "from-life", "text": _text_of(client, run)})
    made = ran(EvalSuite.objects.get(name="from-life"))
    assert "diary" in str(made.planned)
    from agentapp import erasing

    with ledger.transaction():
        erasing.take_away(run.pk, "test", {})
    made.refresh_from_db()
    assert EvalCase.objects.filter(suite__name="from-life").count() == 0
    assert "diary" not in str(made.planned)
    tried = made.results.get().run
    assert tried.erased_at is not None
    assert "diary" not in f"{tried.input} {tried.answer} {tried.script} {tried.mocks}"
    assert page(client, ada, f"/evals/runs/{made.pk}/")


def test_what_was_mocked_can_be_erased_though_its_outcome_was_unknown(suite, clerk):
    Rule.objects.create(name="sends", tool="send", verdict="allow", order=1)
    case = a_case(
        "lost", script=[calls(call("a", "send", to="ann")), says("done")], tools={"send": {"unknown": "lost"}}
    )
    made = results.create(suite, [case])
    runner.go_on(made.pk)
    run = made.results.get().run
    from agentapp import erasing

    with ledger.transaction():
        assert erasing.take_away(run.pk, "test", {})["runs"] == 1
    run.refresh_from_db()
    assert (run.is_mocked, run.mocks) == (True, {})


def test_every_page_of_evals_asks_the_database_a_fixed_number_of_times(
    suite, client, ada, django_assert_max_num_queries
):
    first = ran(suite)
    for number in range(8):
        suites.save_case(suite, a_case(f"more-{number}"), "test")
    second = ran(suite, baseline=first)
    client.force_login(ada)
    for url in (
        "/evals/", "/evals/desk/", "/evals/desk/cases/pays/", f"/evals/runs/{second.pk}/",
        f"/evals/runs/{second.pk}/compare/{first.pk}/",
    ):  # fmt: skip
        with django_assert_max_num_queries(12, info=url):
            assert client.get(url).status_code == 200


def test_a_case_is_no_way_to_what_one_may_not_see(suite, client, clerk, ada, otto):
    run = actions.start_run(actions.NewRun(agent="clerk", input="x", script=[says("done")]), clerk.starter)
    assert page(client, otto, f"/runs/{run.pk}/case/", 403)
