"""The page says exactly what the requirements and their tests say."""

from tests.aisvs import page, test_requirements
from tests.aisvs.requirements import BY_NUMBER, CHAPTERS, REQUIREMENTS, TESTS


def test_each_requirement_that_is_met_in_full_or_in_part_has_a_test_of_its_own():
    assert {one.number for one in REQUIREMENTS if one.status != "not met"} == set(TESTS)
    names = [name for each in TESTS.values() for name in each]
    assert len(set(names)) == len(names)
    assert all(callable(getattr(test_requirements, name)) for name in names)


def test_the_chapters_are_complete():
    counts = {chapter: sum(one.chapter == chapter for one in REQUIREMENTS) for chapter in CHAPTERS}
    assert counts == {"9.1": 3, "9.2": 10, "9.5": 6, "9.6": 3}
    assert len(BY_NUMBER) == len(REQUIREMENTS)


def test_the_page_is_the_one_that_is_made_from_them():
    assert page.PAGE.read_text() == page.text()
