"""How often the loop talks to the database. Counted, so that it cannot creep up unseen."""

from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentapp import loop
from approvals.models import Channel, Rule
from tests.conftest import call, calls, says

BRACKETS = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")


def statements(run) -> list[str]:
    """The statements of one drive, without the brackets of its transactions."""
    with CaptureQueriesContext(
        connection,
    ) as captured:
        loop.drive(run.pk)
    return [query["sql"] for query in captured if not query["sql"].startswith(BRACKETS)]


def reading(steps: int):
    return [calls(call(f"c{n}", "look_up", what=str(n))) for n in range(steps)]


def test_a_settled_reading_step_takes_nine_statements_however_long_the_run(clerk):
    counts = [len(statements(clerk.start(*reading(steps), says("done")))) for steps in (1, 2, 3, 12)]
    assert counts[1] - counts[0] == counts[2] - counts[1] == 9
    assert counts[3] - counts[0] == 9 * 11


def test_three_reads_of_a_step_take_no_more_statements_than_one(clerk):
    one = clerk.start(calls(call("a", "look_up", what="1")), says("done"))
    three = clerk.start(calls(*[call(str(n), "look_up", what=str(n)) for n in range(3)]), says("done"))
    assert len(statements(three)) == len(statements(one))


def test_a_step_that_parks_takes_fourteen_statements_at_most(clerk, roles):
    rule = Rule.objects.create(name="payments", tool="pay", verdict="ask")
    rule.groups.add(roles["approver"])
    Channel.objects.create(name="desk", kind="memory")
    run = clerk.start(*reading(3), calls(call("p", "pay", account="ana", amount=1)))
    sql = statements(run)
    run.refresh_from_db()
    assert run.state == "waiting"
    recorded = [n for n, text in enumerate(sql) if text.startswith('UPDATE "agentapp_run" SET "step_count"')]
    assert len(recorded) == 4
    parking = sql[recorded[-1] :]
    assert len(parking) <= 14, "\n".join(parking)
