"""The pages of Insights: who sees them, what they say, where their figures lead, what a spreadsheet gets."""

import csv
import io
import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp.audit.cells import inert
from agentapp.console.insights_links import rows, within
from agentapp.insights import catch_up, periods
from agentapp.insights.counting import hour_of
from agentapp.models import Agent, Breaker, RollUp
from approvals.models import Rule
from tests.agentapp.insights.sql import FOR_PEOPLE, REAL_RUN, ask
from tests.rows import a_request, take
from tests.traffic import generate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_hour")]
TABS = ("/insights/", "/insights/cost/", "/insights/reliability/")
CARDS = (
    "waiting", "time-to-decide", "by-tool", "by-person", "quick-approvals", "cost-by-day", "by-agent", "by-model",
    "by-tool-cost", "errors", "attempts",
)  # fmt: skip


@pytest.fixture
def page(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


@pytest.fixture
def fill(dana: User, marco: User) -> Any:
    """Two weeks of traffic; a second call doubles it."""
    team = Group.objects.create(name="payments")

    def filled(requests: int = 120, seed: int = 1) -> None:
        now = timezone.now()
        people = [dana, marco]
        generate(now - timedelta(days=15), now, requests, people, [team], calls=1, seed=seed, mocked_each=11).write()
        RollUp.objects.all().delete()
        catch_up(most=timedelta(days=60))

    return filled


def text_of(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("path", [*TABS, "/insights/waiting.csv"])
@pytest.mark.parametrize("who", ["dana", "sam", "otto"])
def test_who_may_not_see_insights_reads_whom_to_ask(
    client: Client, request: pytest.FixtureRequest, path: str, who: str
) -> None:
    client.force_login(request.getfixturevalue(who))
    response = client.get(path)
    assert response.status_code == 403
    assert "Time to decide" not in response.content.decode()
    assert "/insights/" not in client.get("/inbox/").content.decode()


def test_managers_and_admins_find_it_in_the_navigation(client: Client, mia: User, ada: User) -> None:
    for user in (mia, ada):
        client.force_login(user)
        assert 'href="/insights/"' in text_of(client, "/inbox/")


@pytest.mark.parametrize("path", TABS)
def test_pages_ask_the_database_as_little_for_much_as_for_little(page: Client, fill: Any, path: str) -> None:
    def queries(address: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            text_of(page, address)
        return len(captured)

    fill()
    Breaker.objects.create(scope="tool", key="pay", failures=1)
    queries(path)
    few = [queries(f"{path}?range={key}") for key, _, _ in periods.CHOICES]
    fill(240, seed=2)
    Breaker.objects.create(scope="tool", key="send", failures=1)
    assert [queries(f"{path}?range={key}") for key, _, _ in periods.CHOICES] == few
    assert max(few) <= 12, few


def test_every_figure_and_bar_leads_to_the_rows_behind_it(page: Client, fill: Any) -> None:
    fill()
    found = set()
    for path in TABS:
        for href in re.findall(r'href="(/audit/\?[^"]*)"', text_of(page, path)):
            [query] = parse_qs(urlsplit(href.replace("&amp;", "&")).query)["q"]
            found |= {term.partition(":")[0] for term in query.split()}
            assert re.search(r"\bdid:[a-z-]+", query), query
            assert re.search(r"\bsince:\d{4}-\d\d-\d\d\b", query), query
    assert found == {"did", "since", "until", "who", "tool", "risk", "agent", "seen"}


def test_links_say_what_is_meant_in_the_words_of_the_trail() -> None:
    assert rows(did="approved", tool="refund payment", who="") == "/audit/?q=did%3Aapproved+tool%3A%22refund+payment%22"
    assert rows(risk=("high", "critical")) == "/audit/?q=risk%3Ahigh%2Ccritical"
    assert parse_qs(urlsplit(rows(tool='a"b,c\\')).query)["q"] == ['tool:"a\\"b,c\\\\"']
    now = timezone.now()
    day = periods.read({"range": "24h"}, now, timezone.get_current_timezone())
    assert within(day) == {"since": f"{day.begin:%Y-%m-%dT%H:00Z}"}
    asked = {"range": "custom", "from": "2026-10-01", "to": "2026-10-02"}
    words = within(periods.read(asked, now, timezone.get_current_timezone()))
    assert words == {"since": "2026-10-01", "until": "2026-10-02"}


def test_too_few_decisions_have_no_p95_and_the_page_says_why(page: Client, dana: User) -> None:
    for _ in range(3):
        take(a_request(), dana)
    shown = text_of(page, "/insights/")
    assert "Too few (3 of 20) for p95" in shown
    assert re.search(r'p95</span><span class="kpi-v">—', shown)


def test_pages_without_figures_say_what_will_be_there(page: Client) -> None:
    for path, words in zip(
        TABS,
        ("Waits are drawn here once one is.", "Nothing has cost anything", "Nothing has failed so far"),
        strict=True,
    ):
        assert words in text_of(page, path)


def test_a_page_whose_figures_are_late_says_until_when_they_are(page: Client) -> None:
    assert "being added up for the first time" in text_of(page, "/insights/")
    until = hour_of(timezone.now()) - timedelta(hours=9)
    RollUp.objects.create(until=until, looked_at=until)
    shown = text_of(page, "/insights/")
    assert "Figures until" in shown
    assert f"{timezone.localtime(until):%H:%M:%S}" in shown
    catch_up()
    assert "Figures until" not in text_of(page, "/insights/")


def test_what_the_chart_says_waits_now_is_what_waits_now(page: Client, fill: Any) -> None:
    fill()
    for key, _, _ in periods.CHOICES:
        shown = text_of(page, f"/insights/?range={key}")
        [number] = re.findall(r'Waiting now</span><span class="kpi-v">(\d+)', shown)
        assert f"; {number} now." in shown
        assert "Nothing waits" not in shown


def test_a_team_narrows_the_figures_and_stays_in_the_links(page: Client, dana: User, roles: dict[str, Group]) -> None:
    take(a_request(groups=(roles["approver"].pk,)), dana)
    take(a_request(), dana)
    assert "2 requests" in text_of(page, "/insights/")
    narrowed = text_of(page, "/insights/?team=approver")
    assert "1 request<" in narrowed
    assert "team%3Aapprover" in narrowed
    assert "2 requests" in text_of(page, "/insights/?team=nobody")


def test_names_from_outside_are_inert(page: Client) -> None:
    error = "<script>alert(1)</script>"
    Breaker.objects.create(
        scope="tool", key="<b>x</b>\u202e", state="open", opened_at=timezone.now(), failures=3, last_error=error
    )
    shown = text_of(page, "/insights/reliability/")
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert" in shown
    assert "&lt;b&gt;x&lt;/b&gt;⟨U+202E⟩" in shown


@pytest.mark.parametrize("slug", CARDS)
def test_every_card_is_a_file_as_well(page: Client, fill: Any, slug: str) -> None:
    fill()
    response = page.get(f"/insights/{slug}.csv")
    assert response.status_code == 200
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert re.search(
        rf'attachment; filename="{slug}-\d{{4}}-\d\d-\d\d-\d{{4}}-\d\d-\d\d.csv"', response["Content-Disposition"]
    )
    lines = list(csv.reader(io.StringIO(response.content.decode())))
    assert len(lines) > 1
    assert {len(line) for line in lines} == {len(lines[0])}


def test_page_and_file_show_what_sql_counts_by_itself(page: Client, fill: Any) -> None:
    fill(300)
    asked = page.get("/insights/?range=14d").context["asked"].period
    ended = "a.ended_as = 'expired' OR a.ended_as = 'withdrawn' OR a.ended_as = 'superseded' OR a.ended_as = 'decided'"
    tools = ask(
        f"SELECT a.tool, SUM(CASE a.ended_as WHEN 'expired' THEN 1 ELSE 0 END), "
        f"SUM(CASE a.ended_as WHEN 'withdrawn' THEN 1 ELSE 0 END) FROM approvals_approval a "
        f"WHERE {FOR_PEOPLE} AND ({ended}) AND a.ended_at >= %s AND a.ended_at < %s GROUP BY a.tool",
        asked.begin, asked.end,
    )  # fmt: skip
    assert len(tools) == 5
    assert sum(expired + withdrawn for _, expired, withdrawn in tools) > 10
    assert told(page, "/insights/", "by-tool", 0, 5, 6) == {(tool, str(x), str(w)) for tool, x, w in tools}

    calls = ask(
        "SELECT name, COUNT(*), SUM(CASE WHEN result_status IN ('retryable_error', 'fatal_error') THEN 1 ELSE 0 END), "
        "SUM(attempts) FROM agentapp_toolexecution WHERE attempts > 0 AND NOT mocked "
        "AND finished_at >= %s AND finished_at < %s GROUP BY name", asked.begin, asked.end,
    )  # fmt: skip
    assert told(page, "/insights/reliability/", "errors", 0, 1, 2, 4) == {tuple(map(str, row)) for row in calls}

    days = page.get("/insights/cost/?range=14d").context["asked"].period.begin.replace(hour=0)
    models = ask(
        f"SELECT model, COUNT(*), SUM(input_tokens + output_tokens) FROM agentapp_step WHERE {REAL_RUN} "
        "AND model <> '' AND finished_at >= %s AND finished_at < %s GROUP BY model", days, asked.end,
    )  # fmt: skip
    assert len(models) == 2
    assert told(page, "/insights/cost/", "by-model", 0, 2, 3) >= {tuple(map(str, row)) for row in models}

    [(waits,)] = ask(
        f"SELECT COUNT(*) FROM approvals_approval a WHERE {FOR_PEOPLE} AND a.state IN ('pending', 'asked')"
    )
    assert f'Waiting now</span><span class="kpi-v">{waits}<' in text_of(page, "/insights/")


def told(page: Client, path: str, slug: str, *columns: int) -> set[tuple[str, ...]]:
    """What a card says in these columns: the same in its file as in its table on the page."""
    lines = list(csv.reader(io.StringIO(text_of(page, f"/insights/{slug}.csv?range=14d"))))[1:]
    card = text_of(page, f"{path}?range=14d").partition(f'id="{slug}-table"')[2].partition("</details>")[0]
    rows = [re.findall(r"<td[^>]*>(?:<a [^>]*>)?([^<]*)", row) for row in card.split("<tr>")[2:]]
    in_file, on_page = ({tuple(row[at].replace(",", "") for at in columns) for row in some} for some in (lines, rows))
    assert in_file == on_page
    return in_file


def test_a_request_that_took_two_decisions_is_one_request(page: Client, dana: User, marco: User) -> None:
    request = a_request(approvals_needed=2)
    take(request, dana)
    take(request, marco)
    shown = text_of(page, "/insights/")
    assert ">1 request<" in shown
    assert "1 request in 14 days" in shown


def test_a_median_of_what_expired_too_leads_to_what_expired_too(page: Client, dana: User) -> None:
    take(a_request(), dana)
    [href] = re.findall(r'href="([^"]*)"><span class="kpi-l">Time to decide, median', text_of(page, "/insights/"))
    assert parse_qs(urlsplit(href.replace("&amp;", "&")).query)["q"][0].startswith("did:decided,expired ")


def test_only_groups_that_decide_are_offered_as_teams(page: Client, dana: User, roles: dict[str, Group]) -> None:
    take(a_request(groups=(roles["approver"].pk,)), dana)
    rule = Rule.objects.create(name="asks", verdict="ask")
    rule.groups.add(Group.objects.create(name="payments"))
    shown = text_of(page, "/insights/")
    assert re.findall(r'href="\?team=([^"]*)"', shown) == ["approver", "payments"]


@pytest.mark.usefixtures("one_day")
def test_files_have_days_with_their_year_and_plain_numbers(page: Client, dana: User) -> None:
    take(a_request(tool="pay"), dana)
    take(a_request(tool="pay"), dana, "reject", message="No.")

    def lines(slug: str) -> list[list[str]]:
        return list(csv.reader(io.StringIO(page.get(f"/insights/{slug}.csv").content.decode())))

    today = timezone.localdate().isoformat()
    [day, median, p95, number] = lines("time-to-decide")[-1]
    assert (day, p95, number) == (today, "", "2")
    assert median.isdecimal()
    assert lines("waiting")[-2] == [today, "0"]
    assert lines("waiting")[-1][0].startswith(f"{today}T")
    assert lines("by-person")[0][2:4] == ["Median, seconds", "p95, seconds"]
    assert lines("by-person")[1][4] == "0.5"
    assert "—" not in "".join(map("".join, lines("time-to-decide")))


@pytest.mark.parametrize("span", ["24h", "7d"])
def test_the_most_that_waited_does_not_fall_when_requests_are_decided(page: Client, dana: User, span: str) -> None:
    waiting = [a_request() for _ in range(3)]

    def said() -> tuple[str, str]:
        found = re.search(r"waits now\. ([^;]+); (\d+ now)", text_of(page, f"/insights/?range={span}"))
        assert found
        return found[1], found[2]

    most, now = said()
    assert (most, now) == ("None before", "3 now")
    for request in waiting:
        take(request, dana)
    assert said() == (most, "0 now")


def test_each_tab_has_a_title_of_its_own(page: Client) -> None:
    titles = [re.findall("<title>([^<]*)", text_of(page, path))[0] for path in TABS]
    assert [title.split(" · ")[0].strip() for title in titles] == [
        "Insights: approvals", "Insights: cost", "Insights: reliability",
    ]  # fmt: skip


def test_no_card_no_file(page: Client) -> None:
    assert page.get("/insights/salaries.csv").status_code == 404


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", "\t", "\r"])
def test_what_a_spreadsheet_would_run_is_text_in_the_file(page: Client, dana: User, begins: str) -> None:
    assert inert(f"{begins}1+1") == f"'{begins}1+1"
    assert inert("refund") == "refund"
    take(a_request(tool=f"{begins}cmd|' /C calc'!A1"), dana)
    read_back = list(csv.reader(io.StringIO(page.get("/insights/by-tool.csv").content.decode(), newline="")))
    assert read_back[1][0] == f"'{begins}cmd|' /C calc'!A1"


def test_only_who_may_stop_things_is_offered_a_reset(client: Client, mia: User, ada: User) -> None:
    Breaker.objects.create(scope="tool", key="pay", state="open", opened_at=timezone.now(), failures=3)
    client.force_login(mia)
    assert "/reset/" in text_of(client, "/insights/reliability/")
    mia.groups.get().permissions.remove(*mia.groups.get().permissions.filter(codename="engage_killswitch"))
    assert "/reset/" not in text_of(client, "/insights/reliability/")


def test_the_limit_of_a_day_is_drawn_when_every_agent_has_one(page: Client, fill: Any) -> None:
    fill()
    assert "2 of 2 agents have none" in text_of(page, "/insights/cost/")
    Agent.objects.filter(name="support").update(max_daily_cost="5")
    assert "1 of 2 agents have none" in text_of(page, "/insights/cost/")
    Agent.objects.update(max_daily_cost="5.5")
    assert "Daily limit $11.00" in text_of(page, "/insights/cost/")


def test_the_part_that_refreshes_itself_is_the_part_of_the_page(page: Client) -> None:
    part = page.get("/insights/?range=24h", headers={"HX-Request": "true", "HX-Request-Type": "partial"})
    shown = part.content.decode()
    assert shown.strip().startswith('<div class="dash scroll" id="figures"')
    assert 'hx-get="?range=24h"' in shown
