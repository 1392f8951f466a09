"""What an agent is given in a form made from its input schema, and the resulting text for its run.

The run's input is the canonical JSON of what was given: types are kept, and no value can pass for another field.
"""

from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from agentapp import agent_settings
from agentapp.console import schema_form, schemas
from agentapp.console.schema_form import SchemaForm
from agentapp.models import Agent
from agentapp.tools.schema import check_arguments
from approvals.digest import MalformedJSON, canonical


@dataclass(frozen=True)
class Given:
    """The form as it stands, with the resulting input and title. No input: something in it is wrong."""

    form: SchemaForm
    input: str = ""
    title: str = ""


def given(agent: Agent, posted: QueryDict | None, *, check: bool) -> Given | None:
    """What was posted for an agent; None if it takes a plain message. `check`: it is about to be sent.

    An agent takes a message, too, if no form can be made from what was stored before schemas were checked.
    """
    if not agent.input_schema or agent_settings.input_schema_problem(agent.input_schema):
        return None
    properties = schemas.properties(agent.input_schema)
    begin = {name: described["default"] for name, described in properties.items() if "default" in described}
    form = schema_form.build(agent.input_schema, begin, begin, posted=posted)
    for item in form.all_fields:
        item.was = None  # nobody has proposed anything
    if check:
        for problem in check_arguments(agent.input_schema, form.arguments):
            if not form.point_at(problem.field, problem.sentence):
                form.errors.setdefault("", problem.sentence)
    if form.errors:
        return Given(form)
    try:
        return Given(form, canonical(form.arguments), _title(form))
    except MalformedJSON as error:
        form.errors[""] = str(error)
        return Given(form)


def _title(form: SchemaForm) -> str:
    """The fields in one line: "Order 58213, Reason Damaged in transit"."""
    filled: list[Any] = [item for item in form.fields if item.kind not in ("group", "json", "textarea")]
    return ", ".join(f"{item.label} {item.words}" for item in filled if item.words.strip())
