"""What a worker works with while it drives a run: the rows it has read, under the lease it holds."""

import time
import uuid
from dataclasses import dataclass, field, replace

from django.db.models import UUIDField

from agentapp import drafts, mocks, recorded, runs, switches, takers
from agentapp.cancellation import Cancellation
from agentapp.compilers import Earlier, load_earlier
from agentapp.drivers.base import Driver
from agentapp.hooks import Hooks
from agentapp.messages import Usage
from agentapp.mocks import StandIn
from agentapp.models import Conversation, Run, Tool, ToolExecution
from agentapp.proposals import Situation
from agentapp.recorded import OnRecord, Recorded
from agentapp.toolset import Configuration, read_configuration
from agentapp.transcript import StepRows, load_done, load_steps
from approvals import ledger
from approvals.prepared import Given, Prepared

_SEEN = Prepared(
    lambda: (
        Run.objects.filter(pk=Given("run", UUIDField()))
        .order_by()
        .values_list("pause_requested_at", "conversation", "takers")
    )
)


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
    """The last step has calls, and the hooks after it may not have run."""
    cancellation: Cancellation = field(default_factory=Cancellation)
    heard: Usage = field(default_factory=Usage)
    """What models used for the step that is being decided."""
    drafted: bool = False
    """People have seen the beginning of a step that is not stored yet, or a dead worker left one."""
    said: int = 0
    """The version of the conversation that was read."""
    just_claimed: bool = True
    """Nothing was waited for since the run was claimed. The claim also read which kill switches are engaged."""
    recorded: Recorded | None = None
    """The record that answers a replay, or a fork in which nothing may happen."""

    @classmethod
    def load(cls, run: Run) -> "RunState":
        """Read everything a claimed run needs. The number of queries does not depend on its length."""
        if run.lease_token is None:
            raise runs.LeaseLost(f"{run.pk} is held by nobody")
        configuration = _configuration(run)
        # The row has just been read: if it counts no steps, there are none.
        steps = load_steps(run, configuration.tools.values()) if run.step_count else []
        state = cls(run, run.lease_token, configuration, steps, load_earlier(run))
        state.said = run.conversation.version if run.conversation is not None else 0
        state.earlier.done = load_done(run)
        state._bar_who_wrote()
        state.recorded = recorded.load(run)
        state.step_under_way = bool(state.steps and state.steps[-1].open)
        state.drafted = run.has_draft  # type: ignore[attr-defined]
        return state

    def locked(self) -> Run:
        """Lock the run's row and read it again. Inside a transaction. Raises LeaseLost."""
        self.just_claimed = False
        fresh = runs.held(self.run.pk, self.token, self.run)
        fresh.agent, fresh.starter = self.run.agent, self.run.starter
        if fresh.conversation_id == self.run.conversation_id:
            fresh.conversation = self.run.conversation
        self.run = fresh
        return fresh

    def stand_in(self, execution: ToolExecution, text: str, attempt: int) -> StandIn | OnRecord | None:
        """What is called in place of a tool. None: the tool itself."""
        if not self.run.is_mocked and not execution.mocked:
            return None
        if self.recorded is not None:
            return self.recorded.stand_in(self.history, execution, text)
        return mocks.stand_in(self.run, self.steps, execution, text, attempt)

    def discard_draft(self) -> None:
        """Remove the unfinished text if people have seen any. Costs nothing if they have not."""
        if self.drafted:
            drafts.discard(self.run)
            self.drafted = False

    def conversation(self) -> Earlier:
        """What was said before the run, and while a person had taken it over, as it is now."""
        if self.run.takers and self.run.conversation_id is not None:
            version = Conversation.objects.values_list("version", flat=True).get(pk=self.run.conversation_id)
            if version != self.said:
                self.earlier = replace(load_earlier(self.run, self.earlier.kept), done=self.earlier.done)
                self.said = version
                self._bar_who_wrote()
        return self.earlier

    def _bar_who_wrote(self) -> None:
        """Bar people who wrote what the run has just read from deciding on anything it proposes from now on."""
        new = takers.of_talk(self.run) - set(self.run.takers)
        if new:
            with ledger.transaction():
                runs.bar(self.locked(), sorted(new))

    def look_for_pause(self) -> None:
        """Notice, without locking the row, a requested pause or a person who took over."""
        seen = _SEEN.first(run=self.run.pk)
        if seen is not None:
            self.run.pause_requested_at, self.run.conversation_id, self.run.takers = seen

    def may_ask(self) -> bool:
        """Whether a model may be asked. Checked right before, as earlier requests and locks take time."""
        known, self.just_claimed = self.just_claimed, False
        return known or not switches.stops_questions(self.run)

    def refresh_configuration(self, *, always: bool = False) -> None:
        """Read tools and rules again if anything was configured since they were last read.

        `always`: in any case, including grants, which are read for one call.
        """
        if always or self.run.configuration_height != self.configuration.height:  # type: ignore[attr-defined]
            self.configuration = _configuration(self.run)

    @property
    def history(self) -> list[StepRows]:
        """The steps that the run takes as done, followed by its own."""
        return [*self.earlier.kept, *self.steps]

    @property
    def worked_seconds(self) -> float:
        """How long workers have held the run, this one included. Waiting does not count."""
        return self.run.worked_seconds + time.monotonic() - self.began

    @property
    def situation(self) -> Situation:
        """What the checks of calls look at, in its present state."""
        return Situation(self.run, self.configuration, self.disclosed, self.steps, self.earlier)

    @property
    def disclosed(self) -> dict[str, Tool]:
        return self.configuration.disclosed(self.run)


def _configuration(run: Run) -> Configuration:
    """The configuration as of the chain's last event, which was read together with the run's row."""
    return read_configuration(run, run.configuration_height, run.configuration_hash)  # type: ignore[attr-defined]
