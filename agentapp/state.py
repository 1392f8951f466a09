"""What a worker has in hand while it drives a run: rows it has read, under the lease it holds."""

import time
import uuid
from dataclasses import dataclass, field

from agentapp import runs
from agentapp.cancellation import Cancellation
from agentapp.compilers import Earlier, load_conversation
from agentapp.drivers.base import Driver
from agentapp.hooks import Hooks
from agentapp.models import Run, Tool
from agentapp.proposals import Situation
from agentapp.toolset import Configuration, read_configuration
from agentapp.transcript import StepRows, load_steps


@dataclass
class RunState:
    run: Run
    token: uuid.UUID
    configuration: Configuration
    steps: list[StepRows]
    earlier: Earlier
    driver: Driver | None = None
    """Bound when the first step of this drive is decided."""
    began: float = field(default_factory=time.monotonic)
    hooks: Hooks = field(default_factory=Hooks)
    """Loaded when the drive begins."""
    step_under_way: bool = False
    """The last step has had calls to settle, and the hooks behind it have not run."""
    cancellation: Cancellation = field(default_factory=Cancellation)

    @classmethod
    def load(cls, run: Run) -> "RunState":
        """Read everything a claimed run needs. The number of queries does not depend on its length."""
        if run.lease_token is None:
            raise runs.LeaseLost(f"{run.pk} is held by nobody")
        height: int = run.configuration_height  # type: ignore[attr-defined]
        state = cls(run, run.lease_token, read_configuration(run, height), load_steps(run), load_conversation(run))
        state.step_under_way = bool(state.steps and state.steps[-1].open)
        return state

    def locked(self) -> Run:
        """Lock the run's row and read it anew. Inside a transaction. Raises LeaseLost."""
        fresh = runs.held(self.run.pk, self.token)
        fresh.agent, fresh.conversation, fresh.starter = self.run.agent, self.run.conversation, self.run.starter
        self.run = fresh
        return fresh

    def look_for_pause(self) -> None:
        """Notice a pause that was asked for while nothing needed the row's lock."""
        asked = Run.objects.filter(pk=self.run.pk).values_list("pause_requested_at", flat=True)
        self.run.pause_requested_at = asked.first()

    def refresh_configuration(self, *, always: bool = False) -> None:
        """Read tools and rules again if anything was configured since; `always` does so in any case."""
        height: int = self.run.configuration_height  # type: ignore[attr-defined]
        if always or height != self.configuration.height:
            self.configuration = read_configuration(self.run, height)

    @property
    def worked_seconds(self) -> float:
        """How long workers have held the run, this one included. Waiting does not count."""
        return self.run.worked_seconds + time.monotonic() - self.began

    @property
    def situation(self) -> Situation:
        """What the checks of calls look at, as it stands."""
        return Situation(self.run, self.configuration, self.disclosed, self.steps)

    @property
    def disclosed(self) -> dict[str, Tool]:
        return self.configuration.disclosed(self.run)
