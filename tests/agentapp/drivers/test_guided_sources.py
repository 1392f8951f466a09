"""Guidelines name tools of one source, whatever the tools of another are called."""

from agentapp.models import Tool, ToolSource
from agentapp.refreshing import refresh
from tests.conftest import Clerk
from tests.guided import Guide
from tests.mcp_servers import Peer


def test_of_two_sources_with_a_tool_of_one_name_the_guidelines_own_is_called(clerk: Clerk, started: Peer) -> None:
    for name in (started.source.name, "second"):
        refresh(ToolSource.objects.create(name=name, kind="mcp", location=started.location), "test")
    both = Tool.objects.filter(wire__tool="add")
    assert set(both.values_list("name", flat=True)) == {"add", "second_add"}
    both.update(effect_class="read")
    clerk.agent.tools.add(*both)
    guide = Guide(clerk)
    guide.guideline("sums", "", "second_add")
    wanted = {"add": [{"a": 1, "b": 1}], "second_add": [{"a": 8, "b": 2}]}
    run = guide.run({"matched": ["sums"], "evaluations": wanted}, {"says": "It is 10."})
    [made] = run.executions.select_related("tool__source")
    assert (made.name, made.tool.source.name, made.result_status) == ("second_add", "second", "ok")
