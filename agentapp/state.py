"""What a worker has in hand while it drives a run: rows it has read, under the lease it holds."""

import uuid
from dataclasses import dataclass, field

from agentapp import runs
from agentapp.cancellation import Cancellation
from agentapp.drivers.base import Driver
from agentapp.models import Message, Run, Tool
from agentapp.proposals import Situation
from agentapp.toolset import Configuration, read_configuration
from agentapp.transcript import StepRows, load_conversation, load_steps


@dataclass
class RunState:
    run: Run
    token: uuid.UUID
    configuration: Configuration
    steps: list[StepRows]
    earlier: list[Message]
    driver: Driver | None = None
    """Bound when the first step of this drive is decided."""
    cancellation: Cancellation = field(default_factory=Cancellation)

    @classmethod
    def load(cls, run: Run) -> "RunState":
        """Read everything a claimed run needs. The number of queries does not depend on its length."""
        if run.lease_token is None:
            raise runs.LeaseLost(f"{run.pk} is held by nobody")
        height: int = run.configuration_height  # type: ignore[attr-defined]
        return cls(run, run.lease_token, read_configuration(run, height), load_steps(run), load_conversation(run))

    def locked(self) -> Run:
        """Lock the run's row and read it anew. Inside a transaction. Raises LeaseLost."""
        fresh = runs.held(self.run.pk, self.token)
        fresh.agent, fresh.conversation, fresh.starter = self.run.agent, self.run.conversation, self.run.starter
        self.run = fresh
        return fresh

    def refresh_configuration(self, *, always: bool = False) -> None:
        """Read tools and rules again if anything was configured since; `always` does so in any case."""
        height: int = self.run.configuration_height  # type: ignore[attr-defined]
        if always or height != self.configuration.height:
            self.configuration = read_configuration(self.run, height)

    @property
    def situation(self) -> Situation:
        """What the checks of calls look at, as it stands."""
        return Situation(self.run, self.configuration, self.disclosed, self.steps)

    @property
    def disclosed(self) -> dict[str, Tool]:
        return self.configuration.disclosed(self.run)
