"""Servers and processes for the tests of faults. The servers start once, the processes once per file."""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest

from benchmarks.servers import Missing
from tests.e2e.conftest import not_run
from tests.faults.peers import Peer
from tests.faults.stage import Stack, Stage, connected, eventually, staged
from tests.faults.verdict import Verdict, ended, judge, one_view
from tests.faults.world import effects
from tests.wire import DIALECTS


@pytest.fixture(scope="session")
def servers(django_db_blocker: Any) -> Iterator[Stage]:
    with ExitStack() as stack:
        # Not among pytest's folders: it closes them to other users each time it starts.
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="countersign-faults-", ignore_cleanup_errors=True)))
        try:
            with django_db_blocker.unblock():
                made = stack.enter_context(staged(folder))
        except Missing as missing:
            not_run(f"the tests of faults need {missing}")
        yield made


@pytest.fixture(scope="module")
def stage(servers: Stage, django_db_blocker: Any) -> Iterator[Stage]:
    """Both servers; this process's queries go there for as long as a file lasts."""
    with django_db_blocker.unblock(), connected(servers):
        yield servers


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    """A model's provider and a service, elsewhere."""
    made = Peer(DIALECTS["openai"].stream("All ", "is ", "well."))
    yield made
    made.close()


@pytest.fixture(scope="module")
def kept_stack(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(stage, tmp_path_factory.mktemp("stack"))
    try:
        made.until_ready()
        yield made
    finally:
        made.end_all()


@pytest.fixture
def stack(kept_stack: Stack) -> Iterator[Stack]:
    """Web server, two workers and beat, all running. Shows their state when a test fails."""
    kept_stack.renew()
    kept_stack.until_ready()
    kept_stack.watch()
    yield kept_stack
    print(kept_stack.standing())


@pytest.fixture
def conclude(stack: Stack) -> Callable[..., Verdict]:
    """Wait until every run has come to rest, and judge what became of them."""

    def concluding(run_ids: Collection[UUID], cut_off: Collection[UUID] = ()) -> Verdict:
        stack.people.decide_everything()
        verdicts: list[Verdict] = []

        def judged() -> bool:
            acknowledged = list(stack.people.decided)
            with one_view():
                if ended(run_ids):
                    verdicts.append(judge(run_ids, effects(), cut_off, acknowledged))
            return bool(verdicts)

        eventually(judged, "every run to end or to be shown to a person")
        stack.people.stop()
        [verdict] = verdicts
        print(f"\n{verdict}")
        assert verdict.problems == []
        assert stack.people.failures == []
        return verdict

    return concluding
