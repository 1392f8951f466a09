"""Telling workers: by the right name, and never in the way of the work done."""

import uuid
from datetime import timedelta

import pytest
from celery import Celery
from django.conf import settings
from django.db import OperationalError

from agentapp import actions, health_figures, nudges, tasks, worker_queues
from agentapp import sweep as sweeping
from agentapp.models import Heartbeat, Run
from approvals import broker
from approvals.clock import Now
from tests.conftest import call, calls, says
from tests.teams import Team


def test_a_nudge_names_the_task_that_drives_a_run():
    assert tasks.drive_run.name == nudges.DRIVE_RUN


@pytest.fixture
def a_broker(monkeypatch):
    """A private broker that nobody takes messages from."""
    with Celery("test", broker="memory://localhost//", set_as_current=False) as app:
        app.conf.task_default_queue = f"test-{uuid.uuid4().hex[:8]}"
        monkeypatch.setattr(broker, "current_app", app)
        yield app


def test_of_sweeps_that_have_waited_for_a_worker_one_nudges_each_run(clerk, a_broker, monkeypatch):
    run, told = clerk.start(says("done")), []
    monkeypatch.setattr(tasks, "nudge", told.append)
    for _ in range(5):
        tasks.sweep()
    assert told == [run.pk]
    Heartbeat.objects.update(at=Now() - timedelta(minutes=1))
    tasks.sweep()
    assert told == [run.pk, run.pk]


def test_a_sweep_that_has_yet_to_come_keeps_no_other_from_looking(clerk, a_broker, monkeypatch):
    """The database's clock was put back by two hours, and its last sweep was before that."""
    run, told = clerk.start(says("done")), []
    monkeypatch.setattr(tasks, "nudge", told.append)
    Heartbeat.objects.create(pk=health_figures.SWEEP, at=Now() + timedelta(hours=2))
    tasks.sweep()
    assert told == [run.pk]


@pytest.mark.django_db
class TestASweepWhileTheDatabaseIsAway:
    @pytest.fixture
    def looks(self, monkeypatch):
        """How often a sweep has looked; so many looks fail."""
        looked = []

        def away_for(number):
            def is_due():
                looked.append(1)
                if len(looked) <= number:
                    raise OperationalError("the database is away")
                return False

            monkeypatch.setattr(sweeping, "is_due", is_due)
            return looked

        return away_for

    def test_is_tried_again(self, looks):
        looked = looks(2)
        assert tasks.sweep.apply().successful()
        assert len(looked) == 3

    def test_is_left_to_the_next_in_the_end(self, looks):
        looked = looks(1000)
        assert tasks.sweep.apply().failed()
        assert len(looked) == 1 + settings.SWEEP_SECONDS // 2


def sweep_again():
    Heartbeat.objects.update(at=Now() - timedelta(minutes=1))
    tasks.sweep()
    return broker.waiting()


def test_while_many_messages_wait_a_sweep_puts_no_other_beside_them(clerk, a_broker, monkeypatch):
    monkeypatch.setattr(sweeping, "MANY_WAIT", 4)
    for _ in range(4):
        clerk.start(says("done"))
    assert [sweep_again() for _ in range(3)] == [4, 4, 4]
    with a_broker.connection() as connection:
        connection.default_channel.queue_purge(a_broker.conf.task_default_queue)
    assert sweep_again() == 4  # the lost messages are found


def test_while_many_messages_wait_a_run_that_its_worker_left_is_still_nudged(clerk, a_broker, monkeypatch):
    monkeypatch.setattr(sweeping, "MANY_WAIT", 2)
    left, woken = clerk.start(says("done")), clerk.start(says("done"))
    assert sweep_again() == 2
    out = {"lease_until": Now() - timedelta(seconds=1), "lease_token": uuid.uuid4()}
    Run.objects.filter(pk=left.pk).update(state=Run.State.RUNNING, **out)
    Run.objects.filter(pk=woken.pk).update(wake_at=Now() - timedelta(seconds=1))
    assert sweep_again() == 4
    Run.objects.filter(pk=left.pk).update(lease_until=Now() - timedelta(minutes=5))
    Run.objects.filter(pk=woken.pk).update(wake_at=Now() - timedelta(minutes=5))
    assert sweep_again() == 4  # it was told meanwhile


def test_a_run_that_somebody_has_answered_goes_on_before_those_that_wait_for_a_worker(clerk, dana, monkeypatch):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=5)), says("done"))
    [approval], told = clerk.open(run), []
    monkeypatch.setattr(broker, "tell", lambda task, arguments=(), **more: told.append((task, more.get("priority"))))
    clerk.start(says("another"))
    clerk.decide(approval, dana)
    driving = [priority for task, priority in told if task == nudges.DRIVE_RUN]
    assert driving == [broker.WORK, broker.ANSWERED]


def test_a_broker_that_is_down_is_noted_and_stops_nobody(monkeypatch, caplog):
    def down(*arguments, **more):
        raise OSError("no route to host")

    monkeypatch.setattr(broker.current_app, "send_task", down)
    run_id = uuid.uuid4()
    nudges.nudge(run_id)
    assert f"about run {run_id}" in caplog.text


def test_an_asking_run_goes_on_though_every_nudge_is_lost(clerk, monkeypatch):
    team = Team(clerk)
    team.may_ask("refunds", says("yes"))
    monkeypatch.setattr(broker.current_app, "send_task", lambda *arguments, **more: None)
    assert team.run(calls(call("a", "ask_refunds", input="?")), says("done")).state == "succeeded"


@pytest.fixture
def slow(settings, clerk, a_broker):
    """The clerk's runs have a queue of their own."""
    settings.AGENT_QUEUES = {clerk.agent.name: "slow"}
    return clerk


def held(app, queue):
    """The runs that messages in a queue name; they are taken out."""
    with app.connection() as connection, connection.channel() as channel:
        found = []
        while (raw := channel.basic_get(broker.name_of(queue), no_ack=True)) is not None:
            found.append(raw.decode()[0][0])
        return found


def test_a_run_waits_in_the_queue_of_its_agent_and_all_others_in_the_usual_one(slow, a_broker):
    Team(slow).may_ask("refunds", says("yes"))
    a_broker.conf.task_queues = {broker.name_of(queue): {} for queue in ("", "slow")}
    of_clerk = slow.start(says("done"))
    of_other = actions.start_run(actions.NewRun("refunds", "Hello."), slow.starter)
    for queue in ("", "slow"):
        held(a_broker, queue)
    for run in (of_clerk, of_other):
        nudges.nudge(run.pk)
    nudges.answered(of_clerk.pk)
    assert broker.waiting() == 3
    assert held(a_broker, "slow") == [str(of_clerk.pk)] * 2
    assert held(a_broker, "") == [str(of_other.pk)]


def test_while_the_database_is_away_it_waits_in_the_usual_one(slow, a_broker, monkeypatch):
    def away(run_id):
        raise OperationalError("the database is away")

    run = slow.start(says("done"))
    held(a_broker, "slow")
    monkeypatch.setattr(worker_queues, "of_run", away)
    nudges.nudge(run.pk)
    assert held(a_broker, "") == [str(run.pk)]


def test_a_message_that_came_through_another_queue_is_passed_on(slow, a_broker, monkeypatch):
    run, driven = slow.start(says("done")), []
    held(a_broker, "slow")
    monkeypatch.setattr(tasks.loop, "drive", driven.append)
    for queue, passed_on in (("", [str(run.pk)]), ("other", [str(run.pk)]), ("slow", [])):
        tasks.drive_run.apply((str(run.pk),), routing_key=broker.name_of(queue))
        assert held(a_broker, "slow") == passed_on
    assert driven == [run.pk]


def test_without_queues_of_agents_nothing_is_asked_and_nothing_passed_on(clerk, a_broker, django_assert_num_queries):
    run = clerk.start(says("done"))
    held(a_broker, "")
    with django_assert_num_queries(0):
        nudges.nudge(run.pk)
    assert held(a_broker, "") == [str(run.pk)]
    tasks.drive_run.apply((str(run.pk),), routing_key="renamed")
    run.refresh_from_db()
    assert run.state == "succeeded"
