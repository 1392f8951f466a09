"""What an agent always knows about its customer, read by a tool. Written in the admin, through `configuration`."""

from django.core.exceptions import ValidationError
from django.db import models

from agentapp.models.agents import Agent
from agentapp.models.tools import Tool
from approvals.digest import MalformedJSON, canonical, parse
from approvals.ids import uuid7
from approvals.models import EffectClass
from approvals.models.rules import TEN_YEARS_AT_MOST


def _arguments_are_an_object(value: object) -> None:
    if not isinstance(value, dict):
        raise ValidationError("Arguments must be one JSON object.")
    try:
        parse(canonical(value))
    except MalformedJSON as error:
        raise ValidationError(f"No call can carry these arguments. {error}") from error


class ContextVariable(models.Model):
    """A value that a tool reads, and how long it stays valid."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="variables")
    name = models.SlugField(max_length=80, help_text="The name the agent reads, for example open-orders.")
    tool = models.ForeignKey(
        Tool,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="The tool that reads it: one of the agent's tools that only reads.",
    )
    arguments = models.JSONField(
        default=dict, blank=True, validators=[_arguments_are_an_object], help_text="The arguments it is called with."
    )
    freshness_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[TEN_YEARS_AT_MOST],
        help_text="How long a value stays valid. Empty means that each run reads its own.",
    )

    class Meta:
        ordering = ["agent", "name"]
        constraints = [models.UniqueConstraint(fields=["agent", "name"], name="variable_once_per_agent")]

    def __str__(self) -> str:
        return f"{self.agent}: {self.name}"

    def clean(self) -> None:
        if self.tool_id is not None and self.tool.effect_class != EffectClass.READ:
            raise ValidationError({"tool": f"{self.tool.name} may change something; a variable is only read."})
