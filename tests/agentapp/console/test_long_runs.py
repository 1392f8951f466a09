"""A run of thousands of steps is read as quickly as a short one is drawn."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp.console.run_views import FIRST_ROWS, MORE_ROWS
from agentapp.models import Run
from tests.agentapp.long_runs import a_long_run

pytestmark = pytest.mark.django_db
MOST_NODES = 1500


@pytest.fixture
def long_run(sam: User) -> Run:
    return a_long_run(sam, 2000)


@pytest.fixture
def mias(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def part(client: Client, run: Run, query: str, target: str) -> str:
    headers = {"HX-Request": "true", "HX-Request-Type": "partial", "HX-Target": target}
    return client.get(f"/runs/{run.pk}/{query}", headers=headers).content.decode()


def rows(page: str) -> list[str]:
    return re.findall(r'id="row-([\w-]+)"', page)


@pytest.mark.parametrize("query", ["", "?step=1500&call=0", "?q=needle-1999", "?view=costs", "?step=1900&tab=raw"])
def test_two_thousand_steps_take_no_more_queries_and_little_markup(
    mias: Client, long_run: Run, django_assert_max_num_queries: object, query: str
) -> None:
    with django_assert_max_num_queries(12):  # type: ignore[operator]
        page = mias.get(f"/runs/{long_run.pk}/{query}").content.decode()
    if "view" not in query:
        assert len(re.findall(r"<[a-z]", page)) < MOST_NODES
        assert FIRST_ROWS <= len(rows(page)) <= FIRST_ROWS + 2


def test_further_rows_come_in_pages_that_follow_each_other(mias: Client, long_run: Run) -> None:
    page = mias.get(f"/runs/{long_run.pk}/").content.decode()
    following = re.search(r'href="(\?first=(\d+))"', page)
    assert following
    more = part(mias, long_run, following[1], "li#more")
    assert rows(more)[0] == following[2]
    assert MORE_ROWS <= len(rows(more)) <= MORE_ROWS + 2
    assert "runhead" not in more
    # Without JavaScript, the same address is the page that begins there.
    assert rows(mias.get(f"/runs/{long_run.pk}/{following[1]}").content.decode()) == rows(more)


def test_a_refresh_brings_all_that_has_been_loaded(mias: Client, long_run: Run) -> None:
    assert "row-150" in "".join(f"row-{key} " for key in rows(part(mias, long_run, "?upto=150", "div#run")))


def test_a_row_far_down_is_on_the_page_that_asks_for_it(mias: Client, long_run: Run) -> None:
    page = mias.get(f"/runs/{long_run.pk}/?step=1700&call=0").content.decode()
    assert "1700-0" in rows(page)
    assert "Steps before" in page


def test_choosing_a_row_brings_the_inspector_alone(mias: Client, long_run: Run) -> None:
    shown = part(mias, long_run, "?step=3&call=0", "section#inspector")
    assert 'id="inspector"' in shown
    assert "row-" not in shown


def test_the_totals_count_every_step(mias: Client, long_run: Run) -> None:
    for query in ("", "?view=costs"):
        page = mias.get(f"/runs/{long_run.pk}/{query}").content.decode()
        assert "2,040,000" in page
        assert "$2.00" in page


def test_the_next_error_is_the_one_behind_the_chosen_row_and_then_the_first(mias: Client, long_run: Run) -> None:
    for step, following in ((1, 100), (100, 200), (2000, 100)):
        page = mias.get(f"/runs/{long_run.pk}/?step={step}&call=0").content.decode()
        assert f'data-act="next-error" href="?step={following}&amp;call=0"' in page


# --- Many calls in one step ------------------------------------------------------------------------


def test_many_calls_of_a_step_fold_and_those_that_failed_stay(mias: Client, sam: User) -> None:
    run = a_long_run(sam, 100, last_calls=40)
    page = mias.get(f"/runs/{run.pk}/?first=100").content.decode()
    assert rows(page)[:5] == ["100", "100-0", "100-1", "100-2", "100-more"]
    assert "37 more calls" in page
    opened = mias.get(f"/runs/{run.pk}/?first=100&open=100").content.decode()
    assert "100-39" in rows(opened)
    assert "Fold 37 calls" in opened
    chosen = mias.get(f"/runs/{run.pk}/?first=100&step=100&call=30").content.decode()
    assert "100-30" in rows(chosen)
    assert "36 more calls" in chosen
