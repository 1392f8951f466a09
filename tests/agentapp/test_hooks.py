"""What a hook may know and change, how hooks are found, and in what order they run."""

import dataclasses
import uuid

import pytest

from agentapp import hooks
from agentapp.hooks import BeforeStep, BeforeToolUse, Hook, HookFailed, Hooks, RunFacts, StopRun, hook

RUN = RunFacts(id=str(uuid.uuid4()), agent="clerk", state="running")
CALL = BeforeToolUse(
    run=RUN, step=1, call_id="a", name="look_up", arguments={"what": "x"}, arguments_text='{"what": "x"}'
)


def made(*functions, contract="strict"):
    """Hooks at before_tool_use, in the order given."""
    found = [Hook(f"hook{n}", {"before_tool_use": function}) for n, function in enumerate(functions)]
    return Hooks(found, contract)


def changing(**fields):
    return lambda context: dataclasses.replace(context, **fields)


def test_there_are_ten_points():
    assert list(hooks.POINTS) == [
        "before_execution",
        "before_step",
        "before_inference_request",
        "after_inference_response",
        "before_tool_use",
        "after_tool_use",
        "after_step",
        "on_stop",
        "after_execution",
        "on_error",
    ]


def test_every_point_may_change_only_fields_its_context_has_and_never_the_run():
    for point in hooks.POINTS.values():
        fields = {field.name for field in dataclasses.fields(point.context)}
        assert set(point.mutable) <= fields - {"run", "step", "call_id", "inference_id"}


def test_a_hook_that_returns_nothing_changes_nothing_even_if_it_wrote_into_what_it_was_given():
    def writes(context):
        context.arguments["what"] = "y"

    after, changers = made(writes).run("before_tool_use", CALL)
    assert (after.arguments, changers) == ({"what": "x"}, ())


def test_hooks_run_in_descending_priority_and_each_sees_what_the_one_before_made():
    def appends(word):
        return lambda context: dataclasses.replace(context, message=f"{context.message} {word}")

    found = [Hook(str(n), {"before_tool_use": appends(str(n))}, priority=n) for n in (10, 100, 50)]
    after, changers = Hooks(found, "strict").run("before_tool_use", CALL)
    assert after.message == " 100 50 10"
    assert changers == ("100", "50", "10")


def test_hooks_of_one_priority_run_in_the_order_of_the_agents_list():
    order = []
    made(lambda _: order.append(1), lambda _: order.append(2), lambda _: order.append(3)).run("before_tool_use", CALL)
    assert order == [1, 2, 3]


def test_under_the_strict_contract_a_hook_may_set_every_blocking_field():
    after, _ = made(changing(blocked=True, message="no", name="other", arguments={})).run("before_tool_use", CALL)
    assert (after.blocked, after.message) == (True, "no")


def test_under_the_strict_contract_what_a_hook_may_not_change_fails_the_run():
    with pytest.raises(HookFailed, match=r"^Hook 'hook0' cannot mutate 'step' on 'before_tool_use'\.$"):
        made(changing(step=7)).run("before_tool_use", CALL)


def test_under_the_diagnostic_contract_it_is_told_and_the_output_kept():
    noted = []
    after, _ = made(changing(step=7, message="m"), contract="diagnostics").run(
        "before_tool_use", CALL, lambda *what: noted.append(what)
    )
    assert noted == [("hook0", "before_tool_use", "step")]
    assert (after.step, after.message) == (7, "m")


def test_without_a_contract_nobody_is_told():
    noted = []
    after, _ = made(changing(step=7), contract="off").run("before_tool_use", CALL, lambda *what: noted.append(what))
    assert (after.step, noted) == (7, [])


def test_to_a_contract_true_is_not_one():
    with pytest.raises(HookFailed, match="'step'"):
        made(changing(step=True)).run("before_tool_use", CALL)


@pytest.mark.parametrize("changes", [{"blocked": "no"}, {"arguments": "x"}, {"name": None}, {"result": "done"}])
@pytest.mark.parametrize("contract", ["off", "diagnostics", "strict"])
def test_a_value_of_the_wrong_type_fails_the_run(changes, contract):
    with pytest.raises(HookFailed, match="wrong type"):
        made(changing(**changes), contract=contract).run("before_tool_use", CALL)


def test_anything_but_nothing_or_the_context_fails_the_run():
    with pytest.raises(HookFailed, match="returned bool"):
        made(lambda _: False).run("before_tool_use", CALL)


def test_a_hook_that_raises_is_named_and_its_details_stay_in_the_log(caplog):
    def raises(context):
        raise KeyError("secret detail")

    with pytest.raises(HookFailed) as failed:
        made(raises).run("before_tool_use", CALL)
    assert str(failed.value) == ("Hook 'hook0' failed on 'before_tool_use' (KeyError); see the worker's log.")
    assert "secret detail" in caplog.text


def test_a_stop_says_which_hook_it_came_from_unless_it_says_so_itself():
    def stops(source):
        def stop(context):
            raise StopRun("enough", {"n": 1}, source)

        return stop

    for source, told in (("", "hook:hook0"), ("the clock", "the clock")):
        with pytest.raises(StopRun) as stopped:
            made(stops(source)).run("before_tool_use", CALL)
        assert (str(stopped.value), stopped.value.context, stopped.value.source) == ("enough", {"n": 1}, told)


def test_what_hooks_share_is_carried_to_the_next_point():
    def shares(context):
        return dataclasses.replace(context, shared={"n": context.shared.get("n", 0) + 1})

    found = Hooks([Hook("h", {"before_tool_use": shares, "before_step": shares})], "strict")
    found.run("before_tool_use", CALL)
    found.run("before_tool_use", CALL)
    after, _ = found.run("before_step", BeforeStep(run=RUN, step=1))
    assert after.shared == found.shared == {"n": 3}


def test_a_function_is_a_hook_at_the_points_it_names_and_can_be_called_in_a_test():
    @hook("before_step", "before_tool_use", priority=7)
    def sees(context):
        return context.step

    assert (sorted(sees.functions), sees.priority) == (["before_step", "before_tool_use"], 7)
    assert sees(CALL) == 1


@pytest.mark.parametrize(("points", "problem"), [((), "at least one point"), (("before_lunch",), "before_lunch")])
def test_a_hook_at_no_point_there_is_is_refused(points, problem):
    with pytest.raises(ValueError, match=problem):
        hook(*points)


def test_a_class_is_a_hook_at_the_points_it_has_methods_for():
    found = hooks.find("tests.clerk_hooks.Counting")
    assert (found.name, list(found.functions), found.priority) == ("tests.clerk_hooks.Counting", ["before_step"], 0)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("tests.clerk_hooks.gone", "cannot be imported"),
        ("tests.no_such_module.hook", "cannot be imported"),
        ("nowhere", "cannot be imported"),
        ("tests.clerk_hooks.plain", "is not a hook"),
        ("tests.clerk_hooks.Pointless", "has no method for any point"),
        ("tests.clerk_hooks.Breaks", "cannot be made: RuntimeError: no luck"),
    ],
)
def test_what_is_no_hook_is_named_with_what_is_wrong(path, problem):
    assert [path in said and problem in said for said in hooks.check([path])] == [True]
    with pytest.raises(HookFailed, match=path):
        hooks.load({"hooks": [path]})


@pytest.mark.parametrize("paths", ["tests.clerk_hooks.Spy", {"a": 1}, [1], [None]])
def test_hooks_are_a_list_of_dotted_paths(paths):
    assert hooks.check(paths) == ["Hooks are a list of dotted paths."]


def test_an_agent_kept_before_there_were_hooks_has_none():
    assert not any(hooks.load({}).at(point) for point in hooks.POINTS)
