"""The tables of the runtime, a file per noun. Each has one writer, named in its file."""

from agentapp.models.agents import Agent, ApiToken, Route
from agentapp.models.controls import Breaker, KillSwitch, Spending
from agentapp.models.conversations import Conversation, CustomerLink, Message
from agentapp.models.guidelines import (
    Guideline,
    GuidelineMatch,
    GuidelineRelation,
    ToolEvaluation,
    ToolInsight,
    ToolRelation,
)
from agentapp.models.people import Preferences, SavedView, SetupToken
from agentapp.models.runs import Draft, Run, Step, ToolExecution
from agentapp.models.tools import PendingImport, SourceHealth, Tool, ToolSource
from agentapp.models.variables import ContextVariable

__all__ = [
    "Agent",
    "ApiToken",
    "Breaker",
    "ContextVariable",
    "Conversation",
    "CustomerLink",
    "Draft",
    "Guideline",
    "GuidelineMatch",
    "GuidelineRelation",
    "KillSwitch",
    "Message",
    "PendingImport",
    "Preferences",
    "Route",
    "Run",
    "SavedView",
    "SetupToken",
    "SourceHealth",
    "Spending",
    "Step",
    "Tool",
    "ToolEvaluation",
    "ToolExecution",
    "ToolInsight",
    "ToolRelation",
    "ToolSource",
]
