"""OWASP AISVS 1.0, chapters C9.1, C9.2, C9.5 and C9.6: what each asks for in our words, and how far we meet it.

Each test of `test_requirements` belongs to one or more numbers; `page` generates `docs/aisvs.md` from both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["met", "partly", "not met"]

CHAPTERS = {
    "9.1": "Execution budgets, loop control and circuit breakers",
    "9.2": "Approval of high-impact actions, and what cannot be taken back",
    "9.5": "Authorization, delegation and continuous enforcement",
    "9.6": "Shutdown and graceful degradation",
}


@dataclass(frozen=True)
class Requirement:
    """One requirement of the standard. `how` says what meets it here or, if it is not fully met, what is missing."""

    number: str
    level: int
    meaning: str
    status: Status
    how: str

    @property
    def chapter(self) -> str:
        return self.number.rpartition(".")[0]


REQUIREMENTS = (
    Requirement(
        "9.1.1", 1, "Quotas and timeouts of each tool are enforced.", "partly",
        "Each tool has limits on its time, calls in a run, cost and size of result, all enforced. It runs in the "
        "worker's process: it has no quota of CPU, memory or disk.",
    ),
    Requirement(
        "9.1.2", 1, "Each execution has budgets (depth, tokens, money), enforced by the runtime.", "met",
        "Rounds, steps, tokens, working time, money and the depth of agents asking agents are checked before the act.",
    ),
    Requirement(
        "9.1.3", 2, "One switch halts every active agent.", "met",
        "*Controls* and `POST /api/v1/switches` with the scope `all`.",
    ),
    Requirement(
        "9.2.1", 1, "High-impact actions wait until a person has approved them, and that is verified.", "met",
        "Everything but a read waits unless an exact rule or grant allows it; the executor checks the approval again "
        "in the transaction that begins the call. How the approver must show who they are is set by rule, risk and "
        "effect class: a recent sign-in, a second step, a passkey, or a passkey's signature.",
    ),
    Requirement(
        "9.2.2", 2, "A request shows the canonical, complete parameters, nothing cut.", "met",
        "The page is made from the stored canonical text; folded parts say how much more there is.",
    ),
    Requirement(
        "9.2.3", 2, "Each high-impact action has a trusted reversibility class.", "met",
        "Admins set it: `read`, `reversible`, `compensable` or `irreversible`. What a tool's source says never lowers "
        "it, and a tool that says nothing counts as irreversible.",
    ),
    Requirement(
        "9.2.4", 2, "The runtime enforces that class.", "met",
        "Reads run and everything else asks. No rule can allow a whole class of writes, and what cannot be taken back "
        "is in no batch and under no grant.",
    ),
    Requirement(
        "9.2.5", 2, "An agent cannot change itself beyond enforced boundaries.", "met",
        "A run keeps the configuration it began with; instructions, tools, rules and limits are rows that no tool, "
        "result or model text can write.",
    ),
    Requirement(
        "9.2.6", 2, "A model reviews planned high-risk actions in addition to the deterministic gate.", "met",
        "If `SECOND_LOOK_MODEL` names one, a second model looks at each high-risk call before people are asked, and "
        "they read what it says.",
    ),
    Requirement(
        "9.2.7", 2, "That review cannot be manipulated or bypassed.", "met",
        "It is a setting that no row, agent or run can change. The call is sent as data, under our own instructions. "
        "The model has no tools and can only warn; people are asked whatever it answers, or if it does not answer.",
    ),
    Requirement(
        "9.2.8", 3, "An approval is bound to parameters, requester, context and a nonce, and is used once.", "met",
        "A SHA-256 digest covers the canonical call with its tool version, run and execution; each decision has its "
        "own id; one update uses it up. If a rule or `STEP_UP` says `signed`, the approver's passkey signs that "
        "digest, the person, the decision and a nonce, and the signature is kept and checked again before the call "
        "runs.",
    ),
    Requirement(
        "9.2.9", 3, "The means of issuing approvals are out of the agent runtime's reach.", "partly",
        "Only a signed-in person's request makes a decision; passwords, passkeys and sessions are never in a worker's "
        "hands, and no token that starts runs decides. Workers and web processes share one database account, though.",
    ),
    Requirement(
        "9.2.10", 3, "In a chain of actions the gate takes the highest class in it.", "met",
        "An approval covers one call, or one plan: exact calls, none of them irreversible, asked about on the terms "
        "of the strictest. Each is checked again when it is made. An agent that another asks meets the same gate for "
        "each of its calls, by the class of that call.",
    ),
    Requirement(
        "9.5.1", 2, "Fine-grained policies restrict which tools an agent may call and with which values.", "met",
        "Lists of tools and routes, rules with conditions over arguments, schemas, limits.",
    ),
    Requirement(
        "9.5.2", 2, "The user's authorization travels with the run, protected, and is enforced at each call.", "partly",
        "A run's starter and customer are in its row, go to every tool next to the arguments, out of the model's "
        "reach, and are checked before each call. Other services get the platform's credential, not a token of the "
        "user's.",
    ),
    Requirement(
        "9.5.3", 2, "Access is decided by code, never by the model.", "met",
        "The gate reads no text of a model or a tool.",
    ),
    Requirement(
        "9.5.4", 2, "Secrets are not in what the model sees.", "met",
        "The worker reads credentials after the gate; they are removed from what comes back, and secret arguments are "
        "not repeated to the model.",
    ),
    Requirement(
        "9.5.5", 2, "Agents ask agents only as an explicit policy allows.", "met",
        "Lists of allowed and denied agents, a depth limit, and rules on the asking itself.",
    ),
    Requirement(
        "9.5.6", 3, "Long sessions check the current policy again for each privileged action.", "met",
        "Rules, tools, switches and the rights of those who decided are checked again when the call begins, and can "
        "only make it stricter.",
    ),
    Requirement(
        "9.6.1", 1, "A manual switch halts inference and output at once.", "partly",
        "A run stops before its next model or tool call. A reply that a provider is computing is not cut off, but "
        "nothing of it is acted on.",
    ),
    Requirement(
        "9.6.2", 2, "What nobody approves in time is blocked.", "met",
        "It becomes `expired`, does not run, and the agent is told that no one decided.",
    ),
    Requirement(
        "9.6.3", 3, "Kill switches work through a channel separate from the agent runtime.", "partly",
        "A web process writes a switch as a row, with no worker and no broker; agents and tools cannot reach it. It is"
        " in the same database that the runtime uses.",
    ),
)  # fmt: skip

BY_NUMBER = {requirement.number: requirement for requirement in REQUIREMENTS}

TESTS: dict[str, list[str]] = {}
"""The names of the tests of each number."""


def requirement(number: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark which requirement a test demonstrates."""

    def belongs(test: Callable[..., Any]) -> Callable[..., Any]:
        if BY_NUMBER[number].status == "not met":
            raise ValueError(f"{number} is not met, so no test shows it")
        named = TESTS.setdefault(number, [])
        if test.__name__ not in named:
            named.append(test.__name__)
        return test

    return belongs
