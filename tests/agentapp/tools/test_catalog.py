"""The tool about tools knows what the step discloses, and no more."""

from agentapp.answers import answer
from agentapp.models import Tool
from agentapp.tools.catalog import catalog
from tests.conftest import call, calls, says


def asked(clerk, **arguments):
    run = clerk.run(calls(call("a", "tools", **arguments)), says("done"))
    return clerk.execution(run, "a")


def test_a_list_names_every_tool_of_the_step_and_what_it_is_for(clerk, offer):
    offer(catalog)
    Tool.objects.filter(name="undeclared").update(enabled=False)
    listed = asked(clerk, action="list").value
    assert listed["look_up"] == "Look something up."
    assert listed["tools"] == "See which tools you can use."
    assert "undeclared" not in listed
    assert len(listed) == Tool.objects.filter(enabled=True).count()


def test_a_search_finds_the_tools_in_which_all_words_occur(clerk, offer):
    offer(catalog)
    assert set(asked(clerk, action="search", about="PAY key").value) == {"pay", "pay_once"}
    assert asked(clerk, action="search", about="nothing like it").value == {}


def test_help_gives_the_full_description_and_the_arguments(clerk, offer):
    offer(catalog)
    found = asked(clerk, action="help", about="pay").value
    assert found["description"] == "Pay somebody. It does not take a key: what is lost is lost."
    assert set(found["arguments"]["properties"]) == {"account", "amount", "memo"}


def test_help_about_a_tool_there_is_not_names_those_there_are(clerk, offer):
    offer(catalog)
    execution = asked(clerk, action="help", about="pay_all")
    assert execution.result_status == "fatal_error"
    assert "look_up" in answer(execution).text
