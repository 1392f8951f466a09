"""What is composed once for everybody with the same view shows each person what they may see, and nothing else."""

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db.models import QuerySet, TextField

from approvals import entitlement
from approvals.entitlement import Person, Seen, Sight
from approvals.models import Approval
from approvals.prepared import Given
from tests.approvals.test_delegations import lend
from tests.conftest import make_user
from tests.rows import a_request

pytestmark = pytest.mark.django_db


def titles(sight: Sight, reader: Person) -> QuerySet[Approval, str]:
    found = entitlement.seen(sight, reader).filter(tool=Given("tool", TextField()))
    return found.order_by("title").values_list("title", flat=True)


SEEN, WITHOUT_READER = Seen(titles), Seen(titles, sees_all_apart=True)
TOOL = "refund_order"


@pytest.fixture
def everybody(dana: User, mia: User, otto: User, sam: User) -> dict[str, User]:
    """Requests of each kind, and people who may see them for each possible reason."""
    finance = Group.objects.create(name="finance")
    bea, deputy = make_user("Bea", "approver", "finance"), make_user("Deputy", "approver")
    a_request(title="for anybody", risk="medium")
    a_request(title="for finance", risk="medium", groups=(finance.pk,))
    a_request(title="Sam's", risk="medium", groups=(finance.pk,), starter_id=sam.pk)
    a_request(title="nobody's", risk="medium", mocked=True)
    a_request(title="another tool", risk="medium", tool="another")
    lend(bea, deputy, finance)
    return {"dana": dana, "mia": mia, "otto": otto, "sam": sam, "bea": bea, "deputy": deputy}


def test_each_sees_the_same_as_if_it_were_asked_for_them_alone(everybody: dict[str, User]) -> None:
    shown = {name: SEEN.rows(user, tool=TOOL) for name, user in everybody.items() if name != "mia"}
    assert shown == {
        "dana": ["for anybody"],
        "otto": [],
        "sam": ["Sam's"],
        "bea": ["Sam's", "for anybody", "for finance"],
        "deputy": ["Sam's", "for anybody", "for finance"],
    }
    for name, user in everybody.items():
        alone = entitlement.visible(user).filter(tool=TOOL).order_by("title").values_list("title", flat=True)
        assert WITHOUT_READER.rows(user, tool=TOOL) == list(alone), name


def test_who_sees_all_is_asked_nothing_about_themselves_where_that_is_said(everybody: dict[str, User]) -> None:
    assert WITHOUT_READER.first(everybody["mia"], tool="another") == "another tool"
    with pytest.raises(TypeError, match="reader"):
        SEEN.rows(everybody["mia"], tool=TOOL)


def test_a_right_that_changes_changes_what_is_seen(everybody: dict[str, User]) -> None:
    sam = everybody["sam"]
    sam.groups.add(Group.objects.get(name="approver"))
    assert SEEN.rows(User.objects.get(pk=sam.pk), tool=TOOL) == ["Sam's", "for anybody"]


def test_who_may_decide_is_who_holds_the_right_in_any_way(everybody: dict[str, User]) -> None:
    gone, chief, alone = make_user("Gone", "approver"), make_user("Chief"), make_user("Alone")
    User.objects.filter(pk=gone.pk).update(is_active=False)
    User.objects.filter(pk=chief.pk).update(is_superuser=True)
    alone.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    found = set(entitlement.deciders().values_list("username", flat=True))
    assert found == {"dana", "bea", "deputy", "chief", "alone"}
    assert found == {user.username for user in User.objects.all() if user.has_perm("approvals.decide_approval")}
