"""What a run was handed by another: by the agent that asked it, or through the call it takes back. Reads rows."""

from collections.abc import Iterator
from dataclasses import replace

from django.db.models import QuerySet

from agentapp.compilers import load_earlier
from agentapp.models import Run, ToolExecution
from agentapp.provenance import spelling
from agentapp.provenance.origins import origins_of
from agentapp.provenance.paths import leaves, path_of
from agentapp.provenance.sources import (
    CUSTOMER,
    GIVEN,
    OUTSIDE,
    STAFF,
    TRUSTED,
    Past,
    Source,
    changed_by_person,
    read,
    result_of,
    sources_of,
)
from agentapp.transcript import load_steps

BY_ASKER = "{}, told the agent that asked"
BY_FORKER = "Filled in by the person who forked the run"
TAKEN_BACK = "The call to be taken back"


def handed_to(run: Run) -> list[Source]:
    """What the agent or person behind a run had been told. No query for a run that a person or program started."""
    if run.parent_id is not None:
        return list(_by_asker(run))
    if run.opening:
        return [Source(STAFF, BY_FORKER, tuple(spelling.lines_of(run.opening["typed"])))]
    return list(_by_call(run)) if run.undoes_id is not None else []


def before(call: ToolExecution) -> Past:
    """What a run had been told when it proposed one of its calls."""
    run = call.run
    earlier = load_earlier(run)
    done = [rows for made in earlier.steps.values() for rows in made]
    steps = [rows for rows in load_steps(run) if rows.step.number < call.step.number]
    messages = [*earlier.messages, *earlier.meanwhile]
    return Past(run, [*done, *earlier.kept, *steps], messages, handed_to(run), earlier.summary)


def _by_asker(run: Run) -> Iterator[Source]:
    """What came from outside stays so, handed on or not; anything better counts only for what the agent handed on."""
    call = _calls().filter(subrun=run).first()
    if call is None:
        return
    handed_on = spelling.folded_lines(spelling.lines_of(run.input))
    changed = changed_by_person(call)
    if changed:
        yield Source(STAFF, GIVEN, changed, within=handed_on)
    for source in sources_of(before(call)).items:
        within = "" if source.origin == OUTSIDE else source.within or handed_on
        title = source.title if source.step is None else BY_ASKER.format(source.title)
        yield replace(source, title=title, step=None, call="", ref="", within=within)


def _by_call(run: Run) -> Iterator[Source]:
    """A call's arguments, each with its origin for that call. What a model made up was allowed, so it is a fact now."""
    call = _calls().get(undone_in=run)
    arguments, was = read(call.executed_text), read(call.arguments_text)
    schema = call.tool.input_schema if call.tool is not None else {}
    edited = was if changed_by_person(call) else None
    found: dict[str, set[str]] = {}
    for origin in origins_of(sources_of(before(call)), arguments, schema=schema, was=edited):
        found.setdefault(origin.path, set()).add(origin.origin)
    for parts, value in leaves(arguments):
        origins = found.get(path_of(parts), set())
        whose = next((origin for origin in (OUTSIDE, CUSTOMER, STAFF) if origin in origins), TRUSTED)
        yield Source(whose, TAKEN_BACK, tuple(spelling.lines_of(value)))
    own = spelling.folded_lines(spelling.lines_of(arguments))
    yield replace(result_of(call, call.step.number, own), step=None, call="", ref="")


def _calls() -> QuerySet[ToolExecution]:
    return ToolExecution.objects.select_related("run__conversation", "run__agent", "run__starter", "step", "tool")
