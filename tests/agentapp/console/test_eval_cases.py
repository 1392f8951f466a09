"""Writing evals in the console: suites and cases from scratch, renaming cases, and deleting them."""

import html
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import evaluating
from agentapp.evals import files, results, runner, suites
from agentapp.models import EvalCase, EvalRun, EvalSuite
from approvals.models import Event
from tests.agentapp.evals.conftest import a_case
from tests.conftest import Clerk, says


@pytest.fixture
def suite(clerk: Clerk) -> EvalSuite:
    made = suites.create("desk", "What the clerk does.", "test")
    for name in ("greets", "parts"):
        suites.save_case(made, a_case(name, expect={"no_tools": True}), "test")
    return made


@pytest.fixture
def adas(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


def text_of(client: Client, url: str) -> str:
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", client.get(url).content.decode(), re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


def ran(suite: EvalSuite) -> EvalRun:
    made = results.create(suite, evaluating.chosen(suite))
    runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    return made


def names(suite: EvalSuite) -> set[str]:
    return set(suite.cases.values_list("name", flat=True))


def test_a_suite_and_its_first_case_are_written_from_scratch(clerk, adas):
    answer = adas.post("/evals/", {"name": "counter", "description": "At the counter."})
    assert answer.url == "/evals/counter/cases/"
    text = text_of(adas, answer.url)
    assert "agent: clerk" in text
    assert files.read_text(text).agent == "clerk", "what stands there at first is a case"
    text = files.written(a_case("says-hello", script=[says("Hello")]).document)
    answer = adas.post("/evals/counter/cases/", {"text": text})
    assert answer.url == "/evals/counter/cases/says-hello/"
    suite = EvalSuite.objects.get(name="counter")
    assert suite.description == "At the counter."
    assert ran(suite).verdict == "passed"


@pytest.mark.parametrize(("name", "said"), [("desk", "a suite named desk already"), ("no name", "letters, digits")])
def test_a_suite_that_there_is_or_that_has_no_name_is_not_begun(suite, adas, name, said):
    answer = adas.post("/evals/", {"name": name, "description": "<b>Mine</b>"})
    shown = answer.content.decode()
    assert (answer.status_code, said in shown, "<b>Mine" in shown) == (422, True, False)
    assert EvalSuite.objects.count() == 1


def test_a_new_case_replaces_none(suite, adas):
    text = files.written(a_case("greets", description="Another").document)
    answer = adas.post("/evals/desk/cases/", {"text": text})
    assert (answer.status_code, "already has a case named greets" in answer.content.decode()) == (422, True)
    assert EvalCase.objects.get(name="greets").description == ""


def test_a_case_gets_the_name_that_is_written_and_evals_keep_the_name_it_had(suite, adas):
    made = ran(suite)
    row = EvalCase.objects.get(name="greets")
    url = "/evals/desk/cases/greets/"
    answer = adas.post(url, {"text": text_of(adas, url).replace("name: greets", "name: says-hello")})
    assert answer.url == "/evals/desk/cases/says-hello/"
    assert names(suite) == {"says-hello", "parts"}
    row.refresh_from_db()
    assert (row.name, row.document["name"]) == ("says-hello", "says-hello")
    assert [outcome.case.name for outcome in runner.outcomes(made)] == ["greets", "parts"]
    said = Event.objects.get(type="eval.case_renamed").data
    assert said == {"suite": "desk", "case": "greets", "name": "says-hello"}


def test_a_case_does_not_get_the_name_of_another(suite, adas):
    url = "/evals/desk/cases/greets/"
    answer = adas.post(url, {"text": text_of(adas, url).replace("name: greets", "name: parts")})
    assert (answer.status_code, "already has a case named parts" in answer.content.decode()) == (422, True)
    assert names(suite) == {"greets", "parts"}
    assert EvalCase.objects.get(name="parts").document["name"] == "parts"


def test_a_case_is_deleted_and_what_evals_kept_of_it_stays(suite, adas):
    made = ran(suite)
    assert "Delete greets" in adas.get("/evals/desk/cases/greets/").content.decode()
    assert adas.post("/evals/desk/cases/greets/delete/").url == "/evals/desk/"
    assert names(suite) == {"parts"}
    made.refresh_from_db()
    assert "Do it." in str(made.planned[0])
    assert made.results.get(case="greets").run.erased_at is None
    assert Event.objects.filter(type="eval.case_removed").count() == 1


def test_cases_that_stand_in_files_are_neither_written_nor_deleted_here(suite, adas):
    EvalSuite.objects.update(directory="/somewhere")
    assert "New case" not in adas.get("/evals/desk/").content.decode()
    assert "<textarea" not in adas.get("/evals/desk/cases/").content.decode()
    assert "Delete greets" not in adas.get("/evals/desk/cases/greets/").content.decode()
    text = files.written(a_case("more").document)
    for url in ("/evals/desk/cases/", "/evals/desk/cases/greets/"):
        answer = adas.post(url, {"text": text})
        assert (answer.status_code, "change them there" in answer.content.decode()) == (422, True)
    answer = adas.post("/evals/desk/cases/greets/delete/")
    assert (answer.status_code, "change them there" in answer.content.decode()) == (409, True)
    assert names(suite) == {"greets", "parts"}


def test_where_files_are_is_told_from_the_folder_of_the_product(suite, adas, settings):
    for directory, told in ((settings.BASE_DIR / "shop/evals", "shop/evals"), ("/srv/shop", "/srv/shop")):
        EvalSuite.objects.update(directory=str(directory))
        assert f"<code>{told}</code>" in adas.get("/evals/desk/").content.decode()


def test_who_may_not_write_cases_begins_renames_and_deletes_nothing(suite, client, mia):
    client.force_login(mia)
    assert "New suite" not in client.get("/evals/").content.decode()
    assert "New case" not in client.get("/evals/desk/").content.decode()
    assert client.post("/evals/", {"name": "counter"}).status_code == 403
    assert client.get("/evals/desk/cases/").status_code == 403
    assert client.post("/evals/desk/cases/", {"text": "x"}).status_code == 403
    assert client.post("/evals/desk/cases/greets/delete/").status_code == 403
    assert client.get("/evals/desk/cases/greets/delete/").status_code == 405
    assert (names(suite), EvalSuite.objects.count()) == ({"greets", "parts"}, 1)


# --- Cases made of runs --------------------------------------------------------------------------


@pytest.fixture
def of_life(clerk: Clerk, adas: Client) -> EvalCase:
    run = clerk.run(says("My secret diary."), input="Dear diary")
    text = text_of(adas, f"/runs/{run.pk}/case/")
    assert adas.post(f"/runs/{run.pk}/case/", {"suite": "from-life", "text": text}).status_code == 302
    return EvalCase.objects.select_related("suite").get(suite__name="from-life")


def test_a_case_made_of_a_run_keeps_its_name_and_is_made_anew_of_that_run_alone(of_life, clerk, adas):
    url = f"/evals/from-life/cases/{of_life.name}/"
    text = text_of(adas, url)
    answer = adas.post(url, {"text": text.replace(f"name: {of_life.name}", "name: other")})
    assert (answer.status_code, "was made from a run and keeps its name" in answer.content.decode()) == (422, True)
    made_of = f"/runs/{of_life.made_of_id}/case/"
    assert adas.post(made_of, {"suite": "from-life", "text": text}).status_code == 302
    other = clerk.run(says("Hello"))
    answer = adas.post(f"/runs/{other.pk}/case/", {"suite": "from-life", "text": text})
    assert (answer.status_code, "already" in answer.content.decode()) == (422, True)
    of_life.refresh_from_db()
    assert of_life.made_of_id != other.pk


def test_with_a_case_made_of_a_run_what_evals_kept_of_its_words_goes(of_life, adas):
    made = ran(of_life.suite)
    tried = made.results.get().run
    assert "diary" in f"{made.planned} {tried.input} {tried.answer}"
    adas.post(f"/evals/from-life/cases/{of_life.name}/delete/")
    made.refresh_from_db()
    tried.refresh_from_db()
    assert "diary" not in str(made.planned)
    assert "diary" not in f"{tried.input} {tried.answer} {tried.script} {tried.mocks}"
    assert tried.erased_at is not None
    assert adas.get(f"/evals/runs/{made.pk}/").status_code == 200


def test_a_case_made_of_a_run_is_not_deleted_while_an_eval_of_its_suite_is_under_way(of_life, adas):
    going = results.create(of_life.suite, evaluating.chosen(of_life.suite))
    answer = adas.post(f"/evals/from-life/cases/{of_life.name}/delete/")
    assert (answer.status_code, "is under way" in answer.content.decode()) == (409, True)
    assert EvalCase.objects.filter(pk=of_life.pk).exists()
    results.cancel(going.pk, "test")
    adas.post(f"/evals/from-life/cases/{of_life.name}/delete/")
    going.refresh_from_db()
    assert "diary" not in str(going.planned), "also where it was planned and never run"
