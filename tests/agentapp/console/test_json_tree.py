from typing import Any

from agentapp.console.json_tree import MAX_NODES, json_tree, read
from approvals.masking import masked


def nested(depth: int) -> Any:
    value: Any = "the end"
    for _ in range(depth):
        value = {"in": value}
    return value


def test_each_kind_of_value_is_written_as_json_writes_it() -> None:
    tree = json_tree({"t": "a", "n": 1.5, "y": True, "x": None, "e": {}, "l": [], "s": [1, "b"]})
    for shown in ('"a"', ">1.5<", ">true<", ">null<", ">{}<", '<span class="p">[</span><span class="n">1</span>, '):
        assert shown in tree


def test_objects_open_and_close_without_script() -> None:
    tree = json_tree({"customer": {"id": 1}})
    assert '<details open><summary><span class="k">customer</span> <span class="p">{1}</span></summary>' in tree


def test_secrets_are_left_out_at_any_depth() -> None:
    value = {"card": "4242", "in": [{"card": {"number": "4242"}}], "amount": 1}
    assert "4242" not in json_tree(value, {"card"})
    assert "4242" not in str(masked(value, {"card"}))
    assert masked(value, {"card"})["amount"] == 1


def test_keys_and_values_are_inert_and_what_they_hide_is_shown() -> None:
    tree = json_tree({"<b>\u202e": "<script>\x07"})
    assert "<b>" not in tree
    assert "<script>" not in tree
    assert "&lt;b&gt;⟨U+202E⟩" in tree
    assert "&lt;script&gt;⟨U+0007⟩" in tree


def test_a_huge_value_stays_a_page() -> None:
    tree = json_tree([[n, n, n, n, n, n, n] for n in range(10_000)])
    assert tree.count("<li>") <= MAX_NODES + 20
    assert "more, not shown" in tree
    assert "100,000 characters in all" in json_tree({"text": "x" * 100_000})
    assert len(json_tree({"text": "x" * 100_000})) < 5_000


def test_what_is_nested_too_deep_is_said_to_be() -> None:
    assert "nested too deep to show" in json_tree(nested(100))
    assert "the end" in json_tree(nested(60))


def test_a_text_that_is_not_json_is_said_not_to_be() -> None:
    assert read('{"a": 1}') == ({"a": 1}, True)
    assert read('{"a": 1') == (None, False)
    assert read("[" * 100_000) == (None, False)


def test_what_is_nested_without_end_is_not_taken_apart() -> None:
    assert read("[" * 900 + "]" * 900) == (None, False)
    assert read("[" * 150 + "]" * 150)[1]
