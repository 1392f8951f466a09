"""OWASP AISVS 1.0, chapters C9.1, C9.2, C9.5 and C9.6: what each asks for in our words, and how far we meet it.

The tests of `test_requirements` belong to a number each; `docs/aisvs.md` is made from both by `page`.
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
    """One requirement of the standard. `how` says what meets it here; where it is not met in full, what is missing."""

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
        "A tool has a deadline, a number of calls in a run, a cost and a size of result, all enforced. It runs in the "
        "worker's process: there is no quota of CPU, memory or disk for it.",
    ),
    Requirement(
        "9.1.2", 1, "Each execution has budgets (depth, tokens, money), enforced by the runtime.", "met",
        "Rounds, steps, tokens, working time, money and the depth of agents asking agents, looked at before the act.",
    ),
    Requirement(
        "9.1.3", 2, "One switch halts every active agent.", "met",
        "*Controls* and `POST /api/v1/switches` with the scope `all`.",
    ),
    Requirement(
        "9.2.1", 1, "High-impact actions wait until a person has approved them, and that is verified.", "met",
        "Whatever is not a read waits unless an exact rule or grant allows it; the executor looks at the approval "
        "again in the transaction that begins the call. How surely it was a person is set by rule, risk and effect "
        "class: a sign-in of a moment ago, a second step, a passkey, or a passkey's signature.",
    ),
    Requirement(
        "9.2.2", 2, "A request shows the canonical, complete parameters, nothing cut.", "met",
        "The page is made from the stored canonical text; what folds says how much more there is.",
    ),
    Requirement(
        "9.2.3", 2, "Each high-impact action has a trusted reversibility class.", "met",
        "`read`, `reversible`, `compensable`, `irreversible`, set by admins. What its source says of itself never "
        "lowers it, and a tool that says nothing counts as irreversible.",
    ),
    Requirement(
        "9.2.4", 2, "The runtime enforces that class.", "met",
        "Reads run; everything else asks; no rule can allow a whole class of writes, and what cannot be taken back is "
        "in no batch and under no grant.",
    ),
    Requirement(
        "9.2.5", 2, "An agent cannot change itself beyond enforced boundaries.", "met",
        "A run keeps the configuration it began with; instructions, tools, rules and limits are rows that no tool, "
        "result or model text can write.",
    ),
    Requirement(
        "9.2.6", 2, "A model reviews planned high-risk actions besides the deterministic gate.", "met",
        "Where `SECOND_LOOK_MODEL` names one, a second model looks at each call of high risk before people are asked, "
        "and they read what it says.",
    ),
    Requirement(
        "9.2.7", 2, "That review cannot be manipulated or bypassed.", "met",
        "It is a setting that no row, agent or run can change; the call is sent as data, under words of ours; it has "
        "no tools, can only warn, and people are asked whatever it answers, or where it does not.",
    ),
    Requirement(
        "9.2.8", 3, "An approval is bound to parameters, requester, context and a nonce, and is used once.", "met",
        "SHA-256 over the canonical call with its tool version, run and execution; each decision has an id of its own; "
        "one update uses it up. Where a rule or `STEP_UP` says `signed`, the approver's passkey signs that digest, the "
        "person, the decision and a nonce, and the signature is kept and checked again before the call runs.",
    ),
    Requirement(
        "9.2.9", 3, "What approvals are issued with is out of the agent runtime's reach.", "partly",
        "Only a signed-in person's request makes a decision; passwords, passkeys and sessions are never in a worker's "
        "hands, and no token that starts runs decides. Workers and web processes share one database account, though.",
    ),
    Requirement(
        "9.2.10", 3, "In a chain of actions the gate takes the highest class in it.", "met",
        "An approval covers one call, or one plan: exact calls, asked about by the strictest of them, in which "
        "none is irreversible. Each is looked at again when it is made. An agent that another asks meets the same gate "
        "for each of its calls, by the class of that call.",
    ),
    Requirement(
        "9.5.1", 2, "Fine-grained policies restrict which tools an agent may call and with which values.", "met",
        "Lists of tools and routes, rules with conditions over arguments, schemas, limits.",
    ),
    Requirement(
        "9.5.2", 2, "The user's authorization travels with the run, protected, and is enforced at each call.", "partly",
        "Who started a run and its customer stand in its row, go to every tool beside the arguments, out of the "
        "model's reach, and are looked at before each call. Services of others get the platform's credential, not a "
        "token of the user's.",
    ),
    Requirement(
        "9.5.3", 2, "Access is decided by code, never by the model.", "met",
        "No text of a model or a tool is read by the gate.",
    ),
    Requirement(
        "9.5.4", 2, "Secrets are not in what the model sees.", "met",
        "Credentials are read by the worker after the gate; what comes back is cleared of them, and secret arguments "
        "are not repeated to the model.",
    ),
    Requirement(
        "9.5.5", 2, "Agents ask agents only as an explicit policy allows.", "met",
        "Lists of allowed and denied agents, a limit of depth, and rules on the asking itself.",
    ),
    Requirement(
        "9.5.6", 3, "Long sessions look at the current policy again for each privileged action.", "met",
        "Rules, tools, switches and the rights of those who decided are looked at again when the call begins, and can "
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
        "9.6.3", 3, "Kill switches work through a channel apart from the agent runtime.", "partly",
        "A switch is a row that a web process writes, with no worker and no broker; agents and tools "
        "cannot reach it. It lies in the database that the runtime uses too.",
    ),
)  # fmt: skip

BY_NUMBER = {requirement.number: requirement for requirement in REQUIREMENTS}

TESTS: dict[str, list[str]] = {}
"""By number the names of its tests."""


def requirement(number: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say which requirement a test shows."""

    def belongs(test: Callable[..., Any]) -> Callable[..., Any]:
        if BY_NUMBER[number].status == "not met":
            raise ValueError(f"{number} is not met, so no test shows it")
        named = TESTS.setdefault(number, [])
        if test.__name__ not in named:
            named.append(test.__name__)
        return test

    return belongs
