"""The tables of the runtime, one file per noun. Each table has one writer, named in its file."""

from agentapp.models.agents import Agent, ApiToken, Route
from agentapp.models.controls import Breaker, KillSwitch, Spending
from agentapp.models.conversations import Conversation, CustomerLink, Message
from agentapp.models.erasures import Erasure
from agentapp.models.evals import EvalCase, EvalResult, EvalRun, EvalSuite
from agentapp.models.executions import ToolExecution
from agentapp.models.guidelines import (
    Guideline,
    GuidelineMatch,
    GuidelineRelation,
    ToolEvaluation,
    ToolInsight,
    ToolRelation,
)
from agentapp.models.health import Continuity, Heartbeat
from agentapp.models.insights import CallFigures, ModelFigures, RequestFigures, RollUp, Span
from agentapp.models.people import Preferences, SavedView, SetupToken
from agentapp.models.runs import Draft, ModelUse, Run, Step
from agentapp.models.telemetry import TraceProgress
from agentapp.models.tools import PendingImport, SourceHealth, Tool, ToolSource
from agentapp.models.variables import ContextVariable
from agentapp.models.webhooks import WebhookDelivery, WebhookEndpoint, WebhookProgress

__all__ = [
    "Agent",
    "ApiToken",
    "Breaker",
    "CallFigures",
    "ContextVariable",
    "Continuity",
    "Conversation",
    "CustomerLink",
    "Draft",
    "Erasure",
    "EvalCase",
    "EvalResult",
    "EvalRun",
    "EvalSuite",
    "Guideline",
    "GuidelineMatch",
    "GuidelineRelation",
    "Heartbeat",
    "KillSwitch",
    "Message",
    "ModelFigures",
    "ModelUse",
    "PendingImport",
    "Preferences",
    "RequestFigures",
    "RollUp",
    "Route",
    "Run",
    "SavedView",
    "SetupToken",
    "SourceHealth",
    "Span",
    "Spending",
    "Step",
    "Tool",
    "ToolEvaluation",
    "ToolExecution",
    "ToolInsight",
    "ToolRelation",
    "ToolSource",
    "TraceProgress",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookProgress",
]
