"""An OpenAPI document (3.0, 3.1) → its operations, in a form that tools can be made from. It decides nothing.

What cannot be taken over completely is left out with the reason: no operation is ever read with a parameter missing.
"""

import dataclasses
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from agentapp.tools.openapi_schema import Allowance, Schema, SchemaRefused, Schemas, resolve
from agentapp.tools.openapi_text import MAX_BYTES as MAX_BYTES
from agentapp.tools.openapi_text import DocumentRefused as DocumentRefused
from agentapp.tools.openapi_text import parsed
from agentapp.tools.schema import InvalidSchema, validator
from approvals.models import EffectClass, Risk
from approvals.policy import DEFAULT_RISK

# Work on each takes all the others into account, such as choosing its name.
MAX_OPERATIONS = 10_000
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
# What every model provider accepts as a function's name.
_NAME_CHARS = 64
NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{_NAME_CHARS}}}")
# From the method alone: a person must say what the operation does.
_EFFECTS = {
    "get": EffectClass.READ, "head": EffectClass.READ, "options": EffectClass.READ, "trace": EffectClass.READ,
    "put": EffectClass.COMPENSABLE, "patch": EffectClass.COMPENSABLE,
}  # fmt: skip
_STYLES = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}
_KNOWN_STYLES = {
    "path": {"simple", "label", "matrix"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "header": {"simple"},
    "cookie": {"form"},
}
# By the standard, these are not given as parameters.
_NOT_GIVEN = frozenset({"accept", "content-type", "authorization"})
# These say how and where a request is sent: setting them would send another request.
_NOT_SET = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "cookie",
     "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"}
)  # fmt: skip
_FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_BODIES = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
BODY = "body"


@dataclass(frozen=True)
class Place:
    """Where in a request an argument goes. `media` is that of a body, or of a parameter written as JSON.

    `parts` says what is special about the fields of a form: style and explode, contentType, whether it is a file.
    """

    where: str
    name: str
    style: str = ""
    explode: bool = False
    media: str = ""
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """One operation. `places` has one entry for each property of `input_schema`; `security` are its alternatives."""

    name: str
    method: str
    path: str
    summary: str
    description: str
    input_schema: Schema
    places: dict[str, Place]
    servers: tuple[str, ...] = ()
    security: tuple[frozenset[str], ...] = ()
    deprecated: bool = False
    tags: tuple[str, ...] = ()
    output_schema: Schema | None = None
    """The schema of its server's answer, if it was requested and is JSON."""

    @property
    def effect_class(self) -> EffectClass:
        """What a call may do, guessed from the method. If the method does not say, the worst is assumed."""
        return _EFFECTS.get(self.method, EffectClass.IRREVERSIBLE)

    @property
    def risk(self) -> Risk:
        return DEFAULT_RISK[self.effect_class]


@dataclass
class Document:
    """A document that was read. `left_out` says why operations were not taken over."""

    title: str
    version: str
    operations: list[Operation] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    schemes: dict[str, dict[str, Any]] = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    allowance: Allowance = field(default_factory=lambda: Allowance(), compare=False, repr=False)


def read(text: str | bytes, prefix: str = "", answers: bool = False) -> Document:
    """Read a document in JSON or YAML. `prefix` begins the name of each operation. Raises DocumentRefused.

    `answers`: also read what its servers answer.
    """
    try:
        return _read(_document(text), prefix, answers)
    except RecursionError as error:
        raise DocumentRefused("The document is nested too deeply.") from error


def _document(text: str | bytes) -> dict[str, Any]:
    found = parsed(text)
    if not isinstance(found, dict):
        raise DocumentRefused("The document is not an object.")
    version = str(found.get("openapi", ""))
    if not re.match(r"3\.[01](\.|$)", version):
        named = f"Swagger {found['swagger']}" if "swagger" in found else f"version {version!r}" if version else "none"
        raise DocumentRefused(f"Only OpenAPI 3.0 and 3.1 can be read; this is {named}.")
    return found


def _read(document: dict[str, Any], prefix: str, answers: bool) -> Document:
    info = document.get("info") if isinstance(document.get("info"), dict) else {}
    found = Document(str(info.get("title", "")), str(info.get("version", "")))  # type: ignore[union-attr]
    components = document.get("components")
    if isinstance(components, dict) and isinstance(components.get("securitySchemes"), dict):
        found.schemes = components["securitySchemes"]
    found.servers = _servers(document)
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise DocumentRefused("The document has no paths.")
    names: set[str] = set()
    for path, item in paths.items():
        try:
            item = _item(document, item)
        except SchemaRefused as error:
            found.left_out[str(path)] = str(error)
            continue
        for method in METHODS if isinstance(item, dict) else ():
            if isinstance(item.get(method), dict):
                _take(document, found, names, (str(path), method, item, item[method]), prefix)
        if len(found.operations) + len(found.left_out) > MAX_OPERATIONS:
            raise DocumentRefused(f"The document has more than {MAX_OPERATIONS} operations.")
    if answers:
        allowance = Allowance()
        found.operations = [_with_answer(document, one, allowance) for one in found.operations]
    return found


def _item(document: dict[str, Any], item: Any) -> Any:
    """What the document says about a path, including what it refers to. Raises SchemaRefused."""
    if not isinstance(item, dict) or "$ref" not in item:
        return item
    said = resolve(document, item["$ref"])
    beside = {key: value for key, value in item.items() if key != "$ref"}
    return {**said, **beside} if isinstance(said, dict) else said


def _take(
    document: dict[str, Any], found: Document, names: set[str], place: tuple[str, str, Schema, Schema], prefix: str
) -> None:
    path, method, *_ = place
    try:
        made = _operation(document, place, _name(place, names, prefix), found.allowance)
        _check_servers(made.servers if made.servers != found.servers else ())
        validator(made.input_schema)
    except (SchemaRefused, InvalidSchema, KeyError, TypeError, AttributeError, ValueError) as error:
        why = (
            str(error)
            if isinstance(error, SchemaRefused | InvalidSchema)
            else "It does not follow the OpenAPI specification."
        )
        found.left_out[f"{method.upper()} {path}"] = why
    else:
        names.add(made.name)
        found.operations.append(made)


def _name(place: tuple[str, str, Schema, Schema], names: set[str], prefix: str) -> str:
    """A name that every provider accepts, from the operation's own id if it has one."""
    path, method, _, operation = place
    said = str(operation.get("operationId") or f"{method}_{path}")
    legal = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_-]", "_", f"{prefix}{said}")).strip("_-") or method
    return unused_name(legal, names)


def unused_name(name: str, taken: Collection[str]) -> str:
    """The name, or a similar one that is not taken."""
    found, number = name[:_NAME_CHARS], 2
    while found in taken:
        ending = f"_{number}"
        found, number = name[: _NAME_CHARS - len(ending)] + ending, number + 1
    return found


def _operation(
    document: dict[str, Any], place: tuple[str, str, Schema, Schema], name: str, allowance: Allowance
) -> Operation:
    path, method, item, operation = place
    schemas = Schemas(document, is_30=str(document["openapi"]).startswith("3.0"), allowance=allowance)
    properties: dict[str, Any] = {}
    places: dict[str, Place] = {}
    required: list[str] = []

    def add(wanted: str, schema: Any, where: Place, needed: bool) -> None:
        own = wanted if wanted not in places else f"{wanted}_{where.where}"
        if own in places:
            raise SchemaRefused(f"Two parameters are named {own!r}.")
        properties[own], places[own] = schema, where
        if needed:
            required.append(own)

    for parameter in _parameters(document, item, operation):
        schema, where = _parameter(schemas, parameter)
        add(where.name, schema, where, parameter.get("required") is True or where.where == "path")
    unfilled = set(re.findall(r"\{([^}]+)\}", path)) - {p.name for p in places.values() if p.where == "path"}
    if unfilled:
        raise SchemaRefused(f"Its path names {sorted(unfilled)[0]!r}, which is not a parameter.")
    if "requestBody" in operation:
        body = operation["requestBody"]
        body = resolve(document, body["$ref"]) if "$ref" in body else body
        media, schema, parts = _body(schemas, body)
        add(BODY, schema, Place(BODY, BODY, media=media, parts=parts), body.get("required") is True)
    whole: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if schemas.defs:
        whole["$defs"] = schemas.defs
    return Operation(
        name=name,
        method=method,
        path=path,
        summary=str(operation.get("summary", "")),
        description=str(operation.get("description", "") or operation.get("summary", "")),
        input_schema=whole,
        places=places,
        servers=_servers(operation, item, document),
        security=_security(document, operation),
        deprecated=operation.get("deprecated") is True,
        tags=tuple(str(tag) for tag in operation.get("tags") or ()),
    )


def _parameters(document: dict[str, Any], item: Schema, operation: Schema) -> list[Schema]:
    """The path's parameters and the operation's own, which replace those with the same name and place."""
    found: dict[tuple[str, str], Schema] = {}
    for one in [*item.get("parameters", []), *operation.get("parameters", [])]:
        parameter = resolve(document, one["$ref"]) if "$ref" in one else one
        if parameter["in"] == "header" and parameter["name"].lower() in _NOT_GIVEN:
            continue
        # The names of headers ignore case.
        name = parameter["name"].lower() if parameter["in"] == "header" else parameter["name"]
        found[parameter["in"], name] = parameter
    return list(found.values())


def _parameter(schemas: Schemas, parameter: Schema) -> tuple[Any, Place]:
    where, name = parameter["in"], str(parameter["name"])
    if where not in _STYLES:
        raise SchemaRefused(f"The parameter {name!r} is in {str(where)[:20]!r}, where parameters are not supported.")
    if where == "header" and (name.lower() in _NOT_SET or not _FIELD_NAME.fullmatch(name)):
        raise SchemaRefused(f"The header {name[:40]!r} cannot be set by a caller.")
    media = ""
    if "content" in parameter:
        [(media, content)] = parameter["content"].items()
        if not _is_json(media):
            raise SchemaRefused(f"The parameter {name!r} is written as {media}, which is not supported.")
        schema = content.get("schema", {})
    else:
        schema = parameter["schema"]
    style = str(parameter.get("style", _STYLES[where]))
    if style not in _KNOWN_STYLES[where]:
        raise SchemaRefused(
            f"The parameter {name!r} has the style {style[:20]!r}, which is not supported in a {where}."
        )
    explode = bool(parameter.get("explode", style == "form"))
    converted = schemas.converted(schema)
    if parameter.get("description") and isinstance(converted, dict):
        converted = {**converted, "description": str(parameter["description"])}
    return converted, Place(where, name, style, explode, media)


def _body(schemas: Schemas, body: Schema) -> tuple[str, Any, dict[str, dict[str, Any]]]:
    """The first type of body that can be sent, with its schema and what is special about its fields."""
    offered = {str(media).partition(";")[0].strip().lower(): content for media, content in body["content"].items()}
    media = next((one for one in offered if _is_json(one)), None) or next((m for m in _BODIES if m in offered), None)
    if media is None:
        raise SchemaRefused(f"Its body is {', '.join(offered) or 'of no type'}, which is not supported.")
    schema = schemas.converted(offered[media].get("schema", {}))
    parts = {} if _is_json(media) else _fields(schemas, schema, offered[media].get("encoding", {}))
    if body.get("description") and isinstance(schema, dict):
        schema = {**schema, "description": str(body["description"])}
    return media, schema, parts


def _fields(schemas: Schemas, schema: Any, encoding: dict[str, Schema]) -> dict[str, dict[str, Any]]:
    """What is special about the fields of a form."""
    found: dict[str, dict[str, Any]] = {}
    for name, said in encoding.items():
        kept: dict[str, Any] = {key: said[key] for key in ("style", "explode", "contentType") if key in said}
        if kept.get("style", "form") not in _KNOWN_STYLES["query"]:
            raise SchemaRefused(
                f"The field {name!r} has the style {str(kept['style'])[:20]!r}, which is not supported."
            )
        if "style" in kept:
            kept["explode"] = bool(kept.get("explode", kept["style"] == "form"))
        found[name] = kept
    while isinstance(schema, dict) and "$ref" in schema:
        schema = schemas.defs[schema["$ref"].removeprefix("#/$defs/")]
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    for name, one in properties.items():
        items = one.get("items", one) if isinstance(one, dict) else {}
        if isinstance(items, dict) and items.get("format") == "binary":
            found.setdefault(name, {})["file"] = True
    return found


def _is_json(media: str) -> bool:
    kind = media.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _with_answer(document: dict[str, Any], operation: Operation, allowance: Allowance) -> Operation:
    """The operation with what its server answers, if that is known for each success and can be checked."""
    item = _item(document, document["paths"][operation.path])
    is_30 = str(document["openapi"]).startswith("3.0")
    schemas = Schemas(document, is_30=is_30, of_answers=True, allowance=allowance)
    try:
        kinds = [
            _answer(schemas, resolve(document, said["$ref"]) if "$ref" in said else said)
            for status, said in item[operation.method].get("responses", {}).items()
            if str(status).startswith("2")
        ]
        whole: Schema = {"anyOf": kinds, **({"$defs": schemas.defs} if schemas.defs else {})}
        validator(whole)
    except (SchemaRefused, InvalidSchema, KeyError, TypeError, AttributeError, ValueError):
        return operation  # what cannot be read cannot be checked
    return dataclasses.replace(operation, output_schema=whole) if kinds else operation


def _answer(schemas: Schemas, response: Schema) -> Any:
    """The schema of one kind of success: nothing, JSON, or anything."""
    content = response.get("content") or {}
    if not content:
        return {"type": "null"}
    return schemas.converted(next(iter(content.values())).get("schema", {})) if all(map(_is_json, content)) else True


def _servers(*levels: Schema) -> tuple[str, ...]:
    """Those of the first level that names any."""
    for level in levels:
        servers = level.get("servers")
        if isinstance(servers, list) and servers:
            return tuple(_filled(server) for server in servers if isinstance(server, dict) and "url" in server)
    return ()


def _filled(server: Schema) -> str:
    """The address with the defaults of its variables."""
    url = str(server["url"])
    variables = server.get("variables")
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        url = url.replace(f"{{{name}}}", str(variable.get("default", "") if isinstance(variable, dict) else ""))
    return url


def _check_servers(servers: tuple[str, ...]) -> None:
    for server in servers:
        try:
            whole = urljoin("https://service.example/", server)
            _ = httpx2.URL(whole), urlsplit(whole).port  # each refuses what the other accepts as a host or port
        except (ValueError, httpx2.InvalidURL) as error:
            raise SchemaRefused(f"Its server {server[:80]!r} is not an address.") from error


def _security(document: dict[str, Any], operation: Schema) -> tuple[frozenset[str], ...]:
    """The sets of credentials it accepts: any one is enough. Empty: none. If it says nothing: any scheme or none."""
    said = operation.get("security", document.get("security"))
    if said is None:
        components = document.get("components")
        schemes = components.get("securitySchemes") if isinstance(components, dict) else None
        said = [*({name: []} for name in schemes), {}] if isinstance(schemes, dict) and schemes else []
    return tuple(frozenset(str(name) for name in one) for one in said if isinstance(one, dict))
