"""The tables of the runtime, a file per noun. Each has one writer, named in its file."""

from agentapp.models.agents import Agent, ApiToken, Route
from agentapp.models.controls import Breaker, KillSwitch, Spending
from agentapp.models.conversations import Conversation, CustomerLink, Message
from agentapp.models.executions import ToolExecution
from agentapp.models.guidelines import (
    Guideline,
    GuidelineMatch,
    GuidelineRelation,
    ToolEvaluation,
    ToolInsight,
    ToolRelation,
)
from agentapp.models.health import Heartbeat
from agentapp.models.people import Preferences, SavedView, SetupToken
from agentapp.models.runs import Draft, Run, Step
from agentapp.models.tools import PendingImport, SourceHealth, Tool, ToolSource
from agentapp.models.variables import ContextVariable
from agentapp.models.webhooks import WebhookDelivery, WebhookEndpoint, WebhookProgress

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
    "Heartbeat",
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
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookProgress",
]
