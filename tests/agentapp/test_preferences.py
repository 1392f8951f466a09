import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import preferences
from agentapp.models import SavedView
from agentapp.refused import Refused

pytestmark = pytest.mark.django_db


def test_a_view_is_kept_under_a_name(dana: User) -> None:
    view = preferences.save_view(dana, "inbox", "  High risk ", "?risk=high")

    assert (view.name, view.query) == ("High risk", "?risk=high")


@pytest.mark.parametrize("name", ["", "   ", "x" * 61])
def test_a_view_without_a_proper_name_is_not_kept(dana: User, name: str) -> None:
    with pytest.raises(Refused):
        preferences.save_view(dana, "inbox", name, "?risk=high")

    assert not SavedView.objects.exists()


def test_a_name_is_used_once_by_a_person_and_again_by_another(dana: User, marco: User) -> None:
    preferences.save_view(dana, "inbox", "Mine", "?risk=high")
    preferences.save_view(marco, "inbox", "Mine", "?risk=low")

    with pytest.raises(Refused) as refused:
        preferences.save_view(dana, "inbox", "Mine", "?risk=low")

    assert refused.value.code == "exists"


def test_there_is_a_most_since_each_is_counted(dana: User) -> None:
    for number in range(preferences.MAX_VIEWS):
        preferences.save_view(dana, "inbox", f"View {number}", "?risk=high")

    with pytest.raises(Refused):
        preferences.save_view(dana, "inbox", "One more", "?risk=high")


def test_what_others_share_hides_nobody_s_own(
    dana: User, marco: User, mia: User, django_assert_num_queries: Any
) -> None:
    for number in range(preferences.MAX_VIEWS):
        for other in (marco, mia):
            preferences.save_view(other, "audit", f"!{number}", "?q=risk:high", shared=True)
        preferences.save_view(dana, "audit", f"Z{number}", "?q=risk:low")

    with django_assert_num_queries(1):
        found = preferences.seen(SavedView.objects.filter(page="audit"), dana)

    own = [f"Z{number}" for number in range(preferences.MAX_VIEWS)]
    assert [view.name for view in found[: preferences.MAX_VIEWS]] == own
    assert [view.name for view in found[preferences.MAX_VIEWS :]] == ["!0", "!0", "!1", "!1", "!2", "!2", "!3", "!3"]


def test_nobody_deletes_what_is_another_s(dana: User, marco: User) -> None:
    view = preferences.save_view(dana, "inbox", "Mine", "?risk=high")

    assert not preferences.delete_view(marco, view.pk)
    assert not preferences.delete_view(dana, uuid.uuid4())
    assert preferences.delete_view(dana, view.pk)
    assert not SavedView.objects.exists()
