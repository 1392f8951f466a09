"""What follows from guidelines that hold: entailed ones join, lower ones give way."""

from agentapp.considered import Matched
from agentapp.guidance.guidelines import Guideline, Guidelines, Relation
from agentapp.guidance.relations import Resolved, resolve


def of(*guidelines: Guideline, relations: tuple[Relation, ...] = ()) -> Guidelines:
    return Guidelines(guidelines, relations)


def resolved(guidelines: Guidelines, *held: str, transient: tuple[Guideline, ...] = ()) -> Resolved:
    return resolve(guidelines, {name: Matched(name, True, "model") for name in held}, list(transient))


A, B, C = Guideline("a"), Guideline("b"), Guideline("c")


def test_what_is_entailed_holds_through_any_number_of_others() -> None:
    chain = (Relation("entails", "a", "b"), Relation("entails", "b", "c"))
    found = resolved(of(A, B, C, relations=chain), "a")
    assert sorted(found.guidelines) == ["a", "b", "c"]
    assert {name: match.origin for name, match in found.matches.items()} == {
        "a": "model",
        "b": "entailed",
        "c": "entailed",
    }
    assert found.matches["c"].why == "It follows from b."


def test_guidelines_that_entail_each_other_end() -> None:
    circle = (Relation("entails", "a", "b"), Relation("entails", "b", "a"))
    assert sorted(resolved(of(A, B, relations=circle), "a").guidelines) == ["a", "b"]


def test_the_one_that_goes_before_suppresses_the_other_only_where_both_hold() -> None:
    guidelines = of(A, B, relations=(Relation("priority", "a", "b"),))
    both = resolved(guidelines, "a", "b")
    assert (list(both.guidelines), both.matches["b"].suppressed_by) == (["a"], "a")
    assert list(resolved(guidelines, "b").guidelines) == ["b"]


def test_the_higher_number_of_two_that_are_related_goes_before() -> None:
    high = Guideline("b", priority=5)
    guidelines = of(A, high, C, relations=(Relation("priority", "a", "b"),))
    assert sorted(resolved(guidelines, "a", "b", "c").guidelines) == ["b", "c"]


def test_numbers_of_guidelines_that_are_not_related_are_not_compared() -> None:
    assert sorted(resolved(of(A, Guideline("b", priority=5)), "a", "b").guidelines) == ["a", "b"]


def test_one_that_is_suppressed_suppresses_none() -> None:
    relations = (Relation("priority", "a", "b"), Relation("priority", "b", "c"))
    found = resolved(of(A, B, C, relations=relations), "a", "b", "c")
    assert sorted(found.guidelines) == ["a", "c"]
    assert found.matches["b"].suppressed_by == "a"


def test_what_only_a_suppressed_guideline_entails_does_not_hold() -> None:
    relations = (Relation("priority", "a", "b"), Relation("entails", "b", "c"))
    found = resolved(of(A, B, C, relations=relations), "a", "b")
    assert sorted(found.guidelines) == ["a"]
    assert "c" not in found.matches


def test_where_each_goes_before_the_other_both_count() -> None:
    circle = (Relation("priority", "a", "b"), Relation("priority", "b", "a"))
    assert sorted(resolved(of(A, B, relations=circle), "a", "b").guidelines) == ["a", "b"]


def test_one_that_came_with_a_result_is_weighed_against_all_by_its_number() -> None:
    strong = Guideline("result", action="Say sorry.", priority=100, is_transient=True)
    found = resolved(of(A, Guideline("b", priority=200)), "a", "b", transient=(strong,))
    assert sorted(found.guidelines) == ["a", "b"]
    assert found.matches["result"].suppressed_by == "b"
    alone = resolved(of(A), "a", transient=(strong,))
    assert list(alone.guidelines) == ["result"]
    equal = resolved(of(A), "a", transient=(Guideline("result", action="x", is_transient=True),))
    assert sorted(equal.guidelines) == ["a", "result"]
