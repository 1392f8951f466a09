"""A tool call as a form to fill in: its arguments as fields, with hidden input for the secret ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from agentapp.console import fields, schema_form, schemas, typed_text
from agentapp.console.schema_form import SchemaForm
from agentapp.models import Tool, ToolExecution
from agentapp.tools.schema import InvalidSchema, check_arguments
from approvals import lens
from approvals.digest import MalformedJSON, canonical
from approvals.masking import MASK, masked

_SECRET = "secret."  # noqa: S105 - the beginning of a field's name


@dataclass(frozen=True)
class SecretField:
    """An argument typed with hidden input and never shown on the page again."""

    name: str
    label: str
    hint: str
    required: bool
    error: str = ""

    @property
    def field(self) -> str:
        return _SECRET + self.name


@dataclass(frozen=True)
class Filled:
    """The form as it stands, and the arguments it amounts to."""

    form: SchemaForm
    secrets: Sequence[SecretField]
    arguments: dict[str, Any] = field(repr=False)

    @property
    def is_wrong(self) -> bool:
        return bool(self.form.errors) or any(each.error for each in self.secrets)


def seen(tool: Tool, call: ToolExecution) -> Any:
    """What this person may see of the call's arguments. What they post afterwards is their own."""
    fields = lens.hidden([*tool.secret_fields, *call.secret_fields], [*tool.pii_fields, *call.pii_fields])
    return lens.seen(masked(call.args, fields), (), is_open=not lens.hidden((), ("any",)))


def filled(tool: Tool, begin: dict[str, Any], posted: QueryDict | None, *, check: bool) -> Filled:
    schema = _open(tool.input_schema)
    shown = posted if posted is not None and schema_form.SHOWN in posted else None
    form = schema_form.build(schema, begin, begin, secret=tool.secret_fields, posted=shown)
    for item in form.all_fields:
        item.was, item.changed_words = None, ()  # nobody has proposed anything
    arguments = dict(form.arguments)
    secrets = _secrets(tool, schema, posted, arguments, check=check)
    if check:
        _check(tool, form, arguments)
    return Filled(form, secrets, arguments)


def _secrets(
    tool: Tool, schema: Mapping[str, Any], posted: QueryDict | None, arguments: dict[str, Any], *, check: bool
) -> list[SecretField]:
    """The arguments that nobody sees, read from the post into `arguments`."""
    terms = fields.Terms(schema.get("$defs", {}), tool.secret_fields)
    found = []
    for name, given in schemas.properties(schema).items():
        described = schemas.resolve(given, terms.definitions)
        if not terms.hides(name, described):
            continue
        described, _ = schemas.without_null(described, terms.definitions)
        required, error = name in schema.get("required", []), ""
        typed = posted.get(_SECRET + name, "") if posted is not None else ""
        arguments.pop(name, None)
        if typed:
            try:
                arguments[name] = typed_text.read(typed, described)
            except typed_text.Unreadable as problem:
                error = str(problem)
        elif check and required:
            error = "Type it again: it is not kept on the page."
        found.append(SecretField(name, fields.label_of(name, described), schemas.hint(described), required, error))
    return found


def _check(tool: Tool, form: SchemaForm, arguments: dict[str, Any]) -> None:
    """Show what is wrong with each field. The rehearsal reports everything else."""
    if is_masked(arguments):
        form.errors[""] = "Type the masked values again: masked values are not kept on the page."
        return
    try:
        problems = check_arguments(tool.input_schema, arguments)
        canonical(arguments)
    except InvalidSchema:
        return
    except MalformedJSON as error:
        form.errors[""] = str(error)
        return
    hidden = set(tool.secret_fields)
    for problem in problems:
        if problem.field.split("/")[0] not in hidden and not form.point_at(problem.field, problem.sentence):
            form.errors.setdefault("", problem.sentence)


def _open(schema: Any) -> Any:
    """The schema without its locks. They keep approvers from changing a call; here the call is made."""
    if isinstance(schema, dict):
        return {name: _open(part) for name, part in schema.items() if name != "x-lock"}
    return [_open(part) for part in schema] if isinstance(schema, list) else schema


def is_masked(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(is_masked, value.values()))
    if isinstance(value, list):
        return any(map(is_masked, value))
    return isinstance(value, str) and MASK in value
