"""How a tool is defined: the forms of `@tool`, and what each makes of names, words, types and defaults."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from agentapp.tools.base import Injected, Tool, ToolContext, ToolError, tool
from agentapp.tools.results import InvalidArguments
from agentapp.tools.schema import check_arguments


def context(call_id: str = "call_1", **more: Any) -> ToolContext:
    given = {"run_id": "run", "step": 1, "agent": "clerk", "conversation_id": "", "customer": "ana", "actor": "sam",
             "route": "", "idempotency_key": "k", "deadline": datetime.now(UTC)}  # fmt: skip
    return ToolContext(call_id=call_id, **{**given, **more})


def data_of(made: Tool, **arguments: Any) -> Any:
    return made.run(arguments, context()).data


class Search(BaseModel):
    """Search the shelves."""

    words: str = Field(description="What to look for.")
    limit: int = Field(default=10, ge=1, le=50)


# --- Forms -------------------------------------------------------------------------------------


def test_bare_with_a_name_and_with_options_are_the_same_tool_by_other_names():
    def count(words: str) -> int:
        """Count words."""
        return len(words.split())

    assert (tool(count).name, tool("count_words")(count).name) == ("count", "count_words")
    assert tool("count_words", effect="read")(count).effect == "read"
    assert tool(name="other", description="Count them.")(count).description == "Count them."
    assert data_of(tool(count), words="a b c") == 3
    assert tool(count)("a b") == 2


def test_an_option_that_there_is_not_is_an_error_at_definition():
    with pytest.raises(TypeError, match="dangerous"):
        tool(description="Do.", dangerous=True)(lambda: None)  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": 86_401}, {"max_attempts": 0}, {"result_max_kb": 2**31}])
def test_a_number_that_no_row_of_a_tool_can_hold_is_an_error_at_definition(wrong: dict[str, int]):
    [(option, _)] = wrong.items()
    with pytest.raises(ValueError, match=f"'do' has a {option} that is not a whole number between 1 and"):
        tool("do", description="Do.", **wrong)(lambda: None)  # type: ignore[call-overload]


def test_a_class_has_name_words_schema_and_state_of_its_own():
    class Counter:
        name = "search_shelves"
        args_schema = Search

        def __init__(self) -> None:
            self.asked: list[str] = []

        def run(self, words: str, limit: int) -> str:
            self.asked.append(words)
            return f"{len(self.asked)}: {words} {limit}"

    made = tool(Counter)
    assert (made.name, made.description) == ("search_shelves", "Search the shelves.")
    assert [data_of(made, words="x"), data_of(made, words="y")] == ["1: x 10", "2: y 10"]


def test_an_object_that_was_made_with_arguments_is_a_tool():
    class Greeter:
        """Greet somebody."""

        def __init__(self, greeting: str) -> None:
            self.greeting = greeting

        def run(self, who: str) -> str:
            return f"{self.greeting}, {who}"

    made = tool("greet", effect="read")(Greeter("Ahoj"))
    assert (made.name, made.description, data_of(made, who="Ana")) == ("greet", "Greet somebody.", "Ahoj, Ana")


def test_where_there_are_both_the_worker_takes_the_sync_one():
    class Both:
        """Say which."""

        def run(self) -> str:
            return "sync"

        async def arun(self) -> str:
            return "async"

    class OnlyAsync:
        """Say which."""

        async def arun(self) -> str:
            return "async"

    assert (data_of(tool(Both)), data_of(tool(OnlyAsync))) == ("sync", "async")


def test_a_class_that_cannot_be_run_says_so():
    class Nothing:
        """Does nothing."""

    with pytest.raises(ValueError, match=r"'Nothing' needs a method run or arun"):
        tool(Nothing)


# --- Words -------------------------------------------------------------------------------------


def test_a_given_description_beats_the_docstring_and_that_the_schemas():
    def with_words(words: str, limit: int) -> str:
        """From the docstring."""
        return words

    def without(words: str, limit: int) -> str:
        return words

    assert tool(description="Given.", args_schema=Search)(with_words).description == "Given."
    assert tool(args_schema=Search)(with_words).description == "From the docstring."
    assert tool(args_schema=Search)(without).description == "Search the shelves."


def test_a_tool_without_any_description_is_an_error_at_definition():
    def silent(words: str) -> str:
        return words

    class Mute(BaseModel):
        words: str

    for options in ({}, {"infer_schema": False}, {"args_schema": Mute}):
        with pytest.raises(ValueError, match="'silent' needs a description"):
            tool(**options)(silent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "section",
    ["Args:\n    bar the bar", "Args:\n\n", "Args:\nbar: the bar", "Args:\n    bar: the bar\n    and so on"],
)
def test_a_malformed_docstring_is_an_error_at_definition(section):
    def foo(bar: str) -> str:
        return bar

    foo.__doc__ = f"Do it.\n\n{section}\n"
    with pytest.raises(ValueError, match="invalid Google-style docstring"):
        tool(foo)
    assert tool(parse_docstring=False)(foo).description.startswith("Do it.\n\nArgs:")


def test_an_argument_that_only_the_docstring_has_is_named():
    def foo(bar: str) -> str:
        """Do it.

        Args:
            banana: The banana.
        """
        return bar

    with pytest.raises(ValueError, match="'banana'"):
        tool(foo)


def test_a_docstring_may_go_on_over_lines_and_describe_what_is_injected():
    def foo(bar: str, ctx: ToolContext) -> str:
        """Do it.

        Args:
            bar (str): The bar,
                which goes on: like this.
            ctx: What it is told.

        Returns:
            Something.
        """
        return bar

    made = tool(foo)
    assert made.description == "Do it."
    assert made.input_schema["properties"]["bar"]["description"] == "The bar,\nwhich goes on: like this."


def test_arguments_are_described_by_annotated_texts_and_by_fields():
    @tool
    def foo(bar: Annotated[str, "this is the bar"], baz: Annotated[int, Field(description="this is the baz")]) -> str:
        """Do it."""
        return bar

    described = {name: item["description"] for name, item in foo.input_schema["properties"].items()}
    assert described == {"bar": "this is the bar", "baz": "this is the baz"}
    assert foo.input_schema["required"] == ["bar", "baz"]


def test_examples_are_held_to_the_schema_and_shown_to_the_model():
    def find(order: int) -> str:
        """Find an order."""
        return str(order)

    made = tool(examples=[{"order": 1042}])(find)
    assert made.description == 'Find an order.\n\nExamples of arguments:\n{"order": 1042}'
    with pytest.raises(ValueError, match="example of the tool 'find' does not fit: order"):
        tool(examples=[{"order": "1042"}])(find)
    with pytest.raises(ValueError, match="nowhere is not an argument"):
        tool(examples=[{"order": 1, "nowhere": 2}])(find)


# --- Schemas -----------------------------------------------------------------------------------


def test_types_become_json_schema_with_their_limits():
    class Line(BaseModel):
        sku: str
        count: Annotated[int, Field(ge=1, le=9)]

    @tool
    def order(lines: list[Line], speed: Literal["slow", "fast"] = "slow") -> str:
        """Order."""
        return speed

    schema = order.input_schema
    assert schema["properties"]["speed"] == {"default": "slow", "enum": ["slow", "fast"], "type": "string"}
    assert schema["$defs"]["Line"]["properties"]["count"] == {"minimum": 1, "maximum": 9, "type": "integer"}
    assert schema["$defs"]["Line"]["required"] == ["sku", "count"]
    assert (schema["required"], schema["additionalProperties"]) == (["lines"], False)


def test_no_object_at_any_depth_takes_what_it_does_not_name():
    class Line(BaseModel):
        sku: str
        gift: "Line | None" = None

    class Free(BaseModel, extra="allow"):
        note: str

    @tool
    def order(lines: list[Line], free: Free, by_day: dict[str, Line]) -> str:
        """Order."""
        return "ordered"

    definitions = order.input_schema["$defs"]
    assert definitions["Line"]["additionalProperties"] is False
    assert definitions["Free"]["additionalProperties"] is True
    good = {"lines": [{"sku": "a", "gift": {"sku": "b"}}], "free": {"note": "", "x": 1}, "by_day": {"Mo": {"sku": "c"}}}
    assert not check_arguments(order.input_schema, good)
    extra = {**good, "lines": [{"sku": "a", "gift": {"sku": "b", "price": 0}}]}
    assert [problem.field for problem in check_arguments(order.input_schema, extra)] == ["lines/0/gift"]


def test_a_tool_without_parameters_has_an_empty_object_schema():
    @tool
    def now() -> str:
        """Say when."""
        return "now"

    assert now.input_schema == {"additionalProperties": False, "properties": {}, "type": "object"}
    assert data_of(now) == "now"


@pytest.mark.parametrize("schema", [{"type": "object"}, Search(words="x"), "Search", list])
def test_an_args_schema_that_is_no_model_is_named_at_definition(schema):
    with pytest.raises(ValueError, match="args_schema of the tool 'find' must be a pydantic model"):

        @tool(args_schema=schema)
        def find(words: str) -> str:
            """Find."""
            return words


def test_a_class_that_annotates_an_args_schema_and_gives_none_is_named():
    class Misannotated:
        """Find."""

        args_schema: Search

        def run(self, words: str) -> str:
            return words

    with pytest.raises(ValueError, match="'Misannotated' annotates args_schema"):
        tool(Misannotated)


def test_an_args_schema_and_its_function_must_agree():
    def find(words: str) -> str:
        """Find."""
        return words

    def more(words: str, limit: int, where: str) -> str:
        """Find."""
        return words

    with pytest.raises(ValueError, match="has 'limit', which the tool does not take"):
        tool(args_schema=Search)(find)
    with pytest.raises(ValueError, match="lacks 'where', which the tool needs"):
        tool(args_schema=Search)(more)


def test_a_tool_may_take_one_text_whatever_its_signature_says():
    def shout(text) -> str:  # type: ignore[no-untyped-def]
        return text.upper()

    made = tool(infer_schema=False, description="Shout.")(shout)
    assert made.input_schema["properties"] == {"text": {"type": "string"}}
    assert data_of(made, text="ahoj") == "AHOJ"
    with pytest.raises(ValueError, match="takes 2 arguments"):
        tool(infer_schema=False, description="Two.")(lambda a, b: a)


@pytest.mark.parametrize("given", [0, False, "", None, 0.0])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_falsy_default_reaches_the_tool_as_it_is(given, is_async):
    def show(value: Any = given) -> str:
        """Show it."""
        return repr(value)

    async def show_later(value: Any = given) -> str:
        """Show it."""
        await asyncio.sleep(0)
        return repr(value)

    made = tool(show_later if is_async else show)
    assert data_of(made) == repr(given)
    assert made.input_schema["properties"]["value"]["default"] == given
    assert "required" not in made.input_schema


def test_none_is_a_default_of_a_text_too():
    def show(text: str = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        """Show it."""
        return repr(text)

    assert data_of(tool(show), text=None) == "None"
    assert data_of(tool(show)) == "None"


def test_a_default_factory_makes_an_argument_that_is_not_required():
    class Parts(BaseModel):
        tags: list[str] = Field(default_factory=lambda: ["new"])

    def of_model(tags: list[str]) -> list[str]:
        """Tag it."""
        return tags

    def of_signature(tags: Annotated[list[str], Field(default_factory=lambda: ["new"])]) -> list[str]:
        """Tag it."""
        return tags

    for made in (tool(args_schema=Parts)(of_model), tool(of_signature)):
        assert "required" not in made.input_schema
        assert data_of(made) == ["new"]


def test_a_default_that_does_not_fit_its_own_type_is_named():
    with pytest.raises(ValueError, match="default of 'count' of the tool 'order'"):

        @tool
        def order(count: Annotated[int, Field(ge=1)] = 0) -> int:
            """Order."""
            return count


def test_only_what_was_given_and_the_defaults_reach_the_function():
    seen: dict[str, Any] = {}

    def keep(a: int, b: int = 2) -> int:
        """Keep."""
        seen.update(a=a, b=b)
        return a

    data_of(tool(keep), a=1)
    assert seen == {"a": 1, "b": 2}
    with pytest.raises(ToolError, match="id"):
        tool(keep).run({"name": "keep", "args": {"a": 1}, "id": "123"}, context())


def test_a_tool_cannot_change_the_arguments_it_was_called_with():
    def spoil(items: list[Any], options: dict[str, Any]) -> str:
        """Spoil."""
        items.append("x")
        options["deep"]["list"].clear()
        return "done"

    arguments: dict[str, Any] = {"items": [], "options": {"deep": {"list": [1]}}}
    made = tool(spoil)
    open_one = tool(description="Spoil.", input_schema={"type": "object"})(spoil)
    for each in (made, open_one):
        each.run(arguments, context())
        assert arguments == {"items": [], "options": {"deep": {"list": [1]}}}


# --- Errors ------------------------------------------------------------------------------------


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("an odd number")
        return number


def half(number: int) -> int:
    """Halve an even number."""
    if number > 100:
        raise ToolError("too large", retryable=True, retry_after=3)
    if number < 0:
        raise ToolError
    return number // 2


def run_half(number: int, **options: Any) -> Any:
    return tool(args_schema=Even, **options)(half).run({"number": number}, context())


def test_arguments_that_only_the_types_refuse_are_explained_without_quoting_them():
    with pytest.raises(InvalidArguments, match="number: Value error, an odd number") as refused:
        run_half(4711)
    assert "4711" not in str(refused.value)


@pytest.mark.parametrize(
    ("wording", "said"),
    [
        (True, "Tool input validation error"),
        ("Even numbers only.", "Even numbers only."),
        (lambda error: f"{error.error_count()} wrong", "1 wrong"),
    ],
)
def test_a_tool_may_word_the_refusal_of_its_arguments(wording, said):
    result = run_half(3, on_invalid=wording)
    assert (result.status, result.reason, result.message) == ("refused", "invalid_arguments", said)


@pytest.mark.parametrize(
    ("wording", "number", "said"),
    [
        (True, 200, "too large"),
        (True, -2, "Tool execution error"),
        ("It did not work.", 200, "It did not work."),
        (lambda error: f"Sorry: {error}", 200, "Sorry: too large"),
        (lambda error: 1 / 0, 200, "too large"),
    ],
)
def test_a_tool_may_word_its_errors_and_they_stay_errors(wording, number, said):
    result = run_half(number, on_error=wording)
    assert (result.status.endswith("_error"), result.reason, result.message) == (True, "tool_failure", said)
    if number == 200:
        assert (result.status, result.retry_after) == ("retryable_error", 3)


def test_errors_are_left_to_the_caller_unless_the_tool_words_them():
    with pytest.raises(ToolError, match="too large"):
        run_half(200)


def test_only_a_tools_own_errors_are_worded():
    @tool(on_error=True, on_invalid=True)
    def broken(how: str) -> str:
        """Break."""
        raise KeyboardInterrupt if how == "stop" else ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        broken.run({"how": "bug"}, context())
    with pytest.raises(KeyboardInterrupt):
        broken.run({"how": "stop"}, context())


def test_called_as_a_function_a_tool_gives_what_the_function_gives_and_as_a_call_an_envelope():
    value = object()

    @tool
    def give() -> Any:
        """Give."""
        return value

    assert give() is value
    assert give.run({}, context()).status == "ok"


def test_an_injected_annotation_is_exported_beside_the_decorator():
    @tool
    def who(customer: Annotated[str, Injected("customer")]) -> str:
        """Say who."""
        return customer

    assert data_of(who) == "ana"
