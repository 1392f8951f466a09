from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp.console.runs import PAGE
from agentapp.models import Run
from approvals import claims, ledger
from approvals.models import Claim
from tests.agentapp.run_builder import RunBuilder, make_agent, make_tool, proposal, told_run

pytestmark = pytest.mark.django_db
PART = {"HX-Request": "true", "HX-Request-Type": "partial"}


@pytest.fixture
def mias(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def text(client: Client, path: str = "/runs/", **headers: str) -> str:
    response = client.get(path, headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def many(starter: User, count: int) -> list[RunBuilder]:
    """Runs a second apart, the newest last."""
    made = [RunBuilder(starter, f"Question {number}.") for number in range(count)]
    for number, builder in enumerate(made):
        age = timedelta(seconds=count - number)
        Run.objects.filter(pk=builder.id).update(created_at=timezone.now() - age)
    return made


def titles(page: str) -> list[str]:
    return [part.split("<")[0] for part in page.split('class="rowlink"')[1:] for part in [part.split(">", 1)[1]]]


def test_the_newest_run_comes_first_with_what_it_took(mias: Client, sam: User, dana: User) -> None:
    told_run(sam, dana)
    RunBuilder(sam, "The newer one.")
    page = text(mias)
    assert titles(page) == ["The newer one.", "My kettle arrived broken."]
    for shown in ("Sam Operator", "support", "$0.06", "3,600", 'aria-label="Succeeded"', 'aria-label="Queued"'):
        assert shown in page


def test_a_person_without_the_right_sees_only_runs_of_their_own(client: Client, sam: User, otto: User) -> None:
    RunBuilder(sam, "Of somebody else.")
    RunBuilder(otto, "His own.")
    client.force_login(otto)
    page = text(client)
    assert titles(page) == ["His own."]
    assert 'Queued <span class="n">1</span>' in page


def test_whoever_is_not_signed_in_is_sent_to_sign_in(client: Client) -> None:
    response = client.get("/runs/")
    assert (response.status_code, response["Location"]) == (302, "/login/?next=/runs/")


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_the_list_is_only_read(mias: Client, method: str) -> None:
    assert getattr(mias, method)("/runs/").status_code == 405


def test_statuses_are_counted_and_filter(mias: Client, sam: User, dana: User) -> None:
    told_run(sam, dana)
    RunBuilder(sam, "Waits its turn.")
    page = text(mias, "/runs/?state=queued")
    assert titles(page) == ["Waits its turn."]
    assert 'Succeeded <span class="n">1</span>' in page
    assert 'Failed <span class="n">0</span>' in page


def test_runs_of_one_agent(mias: Client, sam: User) -> None:
    RunBuilder(sam, "For support.")
    RunBuilder(sam, "For research.", agent=make_agent("research"))
    assert titles(text(mias, "/runs/?agent=research")) == ["For research."]


def test_what_a_run_waits_for_is_said(mias: Client, sam: User, dana: User, marco: User) -> None:
    refund = make_tool("refund_payment", "irreversible")
    one, two, lost = RunBuilder(sam), RunBuilder(sam), RunBuilder(sam)
    one.ask(*one.step("", proposal(refund, {"n": 1})))
    two.ask(*two.step("", proposal(refund, {"n": 1}), proposal(refund, {"n": 2})))
    (call,) = lost.step("", proposal(refund, {"n": 3}))
    lost.use(call, lost.decide(lost.ask(call)[0], dana))
    lost.lose(call)
    page = text(mias)
    for words in ("approver: refund_payment<", "approver: 2 requests", "A person: outcome unknown"):
        assert words in page


def test_the_team_that_was_asked_is_named_and_whoever_has_claimed_it(mias: Client, sam: User, dana: User) -> None:
    refund, team = make_tool("refund_payment", "irreversible"), Group.objects.create(name="Payments")
    asked, claimed = RunBuilder(sam), RunBuilder(sam)
    asked.ask(*asked.step("", proposal(refund, {"n": 1})), groups=[team])
    [mine, other] = claimed.ask(*claimed.step("", proposal(refund, {"n": 1}), proposal(refund, {"n": 2})))
    assert "Payments: refund_payment<" in text(mias)

    with ledger.transaction():
        assert isinstance(claims.take(mine.pk, dana, timedelta(minutes=5)), Claim)
    assert "People: 2 requests" in text(mias)
    with ledger.transaction():
        assert isinstance(claims.take(other.pk, dana, timedelta(minutes=5)), Claim)
    assert "Dana Whitfield: 2 requests" in text(mias)
    # An expired lease means nothing.
    Claim.objects.update(until=timezone.now() - timedelta(minutes=1))
    assert "approver: 2 requests" in text(mias)


def test_pages_follow_each_other_without_a_gap_or_a_double(mias: Client, sam: User) -> None:
    many(sam, PAGE + 7)
    same_moment = timezone.now() - timedelta(days=1)
    Run.objects.update(created_at=same_moment)  # only the key still orders them
    first = mias.get("/runs/")
    older = first.context["page"].older
    second = mias.get("/runs/", {"from": str(older)})
    seen = [run.pk for page in (first, second) for run in page.context["page"].runs]
    assert len(seen) == len(set(seen)) == PAGE + 7
    assert seen == sorted(seen, reverse=True)
    back = mias.get("/runs/", {"from": str(second.context["page"].newer)})
    assert back.context["page"].runs == first.context["page"].runs
    assert second.context["page"].older is None


def test_pages_are_never_counted_off(mias: Client, sam: User) -> None:
    many(sam, PAGE + 1)
    with CaptureQueriesContext(connection) as queries:
        mias.get("/runs/", {"from": str(mias.get("/runs/").context["page"].older)})
    assert not [query for query in queries if "OFFSET" in query["sql"]]


def test_a_refresh_moves_nothing_and_tells_how_many_are_new(mias: Client, sam: User) -> None:
    builder = many(sam, 3)[-1]
    refresh = mias.get("/runs/").context["refresh"]
    builder.step("It goes on.")
    RunBuilder(sam, "New.")
    part = text(mias, f"/runs/{refresh}", **PART)
    assert titles(part) == ["Question 2.", "Question 1.", "Question 0."]
    assert "1 new run<" in part
    assert 'aria-label="Running"' in part
    assert mias.get(f"/runs/{refresh}").context["refresh"] == refresh


def test_the_part_is_the_piece_of_the_page(mias: Client, sam: User) -> None:
    many(sam, 2)
    part = text(mias, **PART)
    assert "<html" not in part
    assert part.strip() in text(mias)


def test_a_place_that_no_list_has_written_is_refused(mias: Client) -> None:
    for place in ("1", "x_y", "2026-01-01_not-a-key", "2026-01-01T00:00:00_01931bd8-0000-7000-8000-000000000000"):
        assert mias.get("/runs/", {"from": place}).status_code == 400


def test_an_empty_list_says_how_a_run_is_started_here(client: Client, sam: User) -> None:
    client.force_login(sam)
    page = text(client)
    assert "curl http://testserver/api/v1/runs" in page
    assert 'href="/runs/new/"' in page


def test_a_list_that_is_empty_by_its_filters_says_so(mias: Client, sam: User) -> None:
    RunBuilder(sam)
    assert "No run matches these filters" in text(mias, "/runs/?state=failed")


def test_text_from_outside_is_inert(mias: Client, sam: User) -> None:
    RunBuilder(sam, "<script>alert(1)</script> \u202egnp.exe {{ x }}")
    page = text(mias)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; ⟨U+202E⟩gnp.exe {{ x }}" in page


def test_the_page_takes_no_query_for_a_row(mias: Client, sam: User, mia: User) -> None:
    counts = []
    refund = make_tool("refund_payment", "irreversible")
    for size in (1, 40):
        for builder in many(sam, size):
            builder.ask(*builder.step("", proposal(refund, {"n": 1})))
        with CaptureQueriesContext(connection) as queries:
            page = mias.get("/runs/", {"from": str(mias.get("/runs/").context["page"].first), "top": "1"})
            assert len(page.context["page"].runs) >= size
        counts.append(len(queries))
    assert counts[0] == counts[1]
    with CaptureQueriesContext(connection) as queries:
        mias.get("/runs/", {"from": str(page.context["page"].first)})
    assert len(queries) <= 12
