"""What an installation may write for its guidance: matchers, choices, planners and batchers."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from agentapp.guidance.batching import Batch, Candidate
from agentapp.guidance.known import Context
from agentapp.guidance.planner import PlannedCall


def is_vip(context: Context) -> tuple[bool, str]:
    return context.customer.startswith("vip"), f"The customer is {context.customer}."


def broken(context: Context) -> bool:
    return bool(1 / 0)


def own_accounts(context: Context) -> list[str]:
    return [f"{context.customer}-savings", f"{context.customer}-daily"]


def nothing_to_choose(context: Context) -> list[str]:
    return []


def one_batch(candidates: Sequence[Candidate], overlaps: Sequence[tuple[str, str]]) -> list[Batch]:
    return [Batch(1, tuple(candidates))]


class Watching:
    """A planner that records what it is told."""

    noted: ClassVar[list[tuple[str, Any]]] = []

    def on_guidelines_resolved(self, context: Context, matches: Any) -> None:
        self.noted.append(("resolved", [match.guideline for match in matches if match.is_active]))

    def on_tools_inferred(self, context: Context, calls: Any) -> Any:
        self.noted.append(("inferred", [call.tool for call in calls]))
        return calls

    def on_tools_called(self, context: Context, calls: Any) -> None:
        self.noted.append(("called", [call.tool for call in calls]))

    def needs_additional_iteration(self, context: Context) -> bool:
        self.noted.append(("more", context.iteration))
        return False


class Insatiable(Watching):
    """Always wants another look."""

    def needs_additional_iteration(self, context: Context) -> bool:
        return True


def at_a_second_look(context: Context) -> bool:
    return context.iteration > 1


class Backwards(Watching):
    """Reverses the calls, leaves the last out, and looks twice."""

    def on_tools_inferred(self, context: Context, calls: Any) -> Any:
        return list(reversed(calls))[:-1] if len(calls) > 1 else calls

    def needs_additional_iteration(self, context: Context) -> bool:
        return context.iteration == 1


# --- Faulty code -------------------------------------------------------------------------------


async def a_coroutine(context: Context) -> bool:
    return False


def a_word(context: Context) -> str:
    return "no"


def nothing(*given: Any) -> None:
    return None


def a_text(context: Context) -> str:
    return "ana-daily"


def too_large_a_number(context: Context) -> list[int]:
    return [2**60]


def half_a_character(context: Context) -> list[str]:
    return ["ana\ud83d"]


def fails_on_the_way(context: Context) -> Iterator[str]:
    yield "ana"
    raise LookupError("The directory is away.")


def very_many(context: Context) -> list[str]:
    return [f"account-{number}" for number in range(100_000)]


def broken_batcher(candidates: Sequence[Candidate], overlaps: Sequence[tuple[str, str]]) -> list[Batch]:
    raise LookupError("No batches today.")


def all_but_the_first(candidates: Sequence[Candidate], overlaps: Sequence[tuple[str, str]]) -> list[Batch]:
    return [Batch(1, tuple(candidates[1:]))]


def twice_the_first(candidates: Sequence[Candidate], overlaps: Sequence[tuple[str, str]]) -> list[Batch]:
    return [Batch(1, tuple(candidates)), Batch(2, tuple(candidates[:1]))]


def all_of_one_number(candidates: Sequence[Candidate], overlaps: Sequence[tuple[str, str]]) -> list[Batch]:
    return [Batch(100_000, (candidate,)) for candidate in candidates]


class NotBuilt(Watching):
    def __init__(self) -> None:
        raise LookupError("No plan today.")


class Raising(Watching):
    def on_guidelines_resolved(self, context: Context, matches: Any) -> None:
        raise LookupError("The plan is lost.")


class Silent(Watching):
    def on_tools_inferred(self, context: Context, calls: Any) -> Any:
        return None


class Wordy(Watching):
    def on_tools_inferred(self, context: Context, calls: Any) -> Any:
        return ["look_up"]


class Unsure(Watching):
    def needs_additional_iteration(self, context: Context) -> Any:
        return "maybe"


class Stuttering(Watching):
    """Names each call twice, and adds one of its own."""

    def on_tools_inferred(self, context: Context, calls: Any) -> Any:
        return [*calls, *calls, PlannedCall("call_own", "fail", {"how": "never"})]


class Half:
    """A planner that lacks most of its methods."""

    def on_guidelines_resolved(self, context: Context, matches: Any) -> None:
        return None
