"""Every topic of the event stream × every role, and every reason to write to somebody × every role: see `matrix.txt`.

Each line says who learns of something in the starter's run.
"""

from collections.abc import Iterable
from contextlib import AsyncExitStack

import pytest

from agentapp import preferences
from agentapp.models import Run
from approvals import decisions, ledger, notify, people
from approvals.clock import Now
from approvals.models import Approval, Comment, Notification
from tests.agentapp.test_live import commit, cookie_of, listening, play
from tests.security import surface
from tests.security.surface import ROLES, World
from tests.security.test_matrix import OTHER, table

pytestmark = pytest.mark.django_db(transaction=True)
STREAM, MAIL = OTHER
# These need more than a request: a comment, and an earlier message.
ABOUT_MORE = (Notification.Kind.MENTIONED, Notification.Kind.FOLLOWED)


@pytest.fixture
def world(roles: object) -> World:
    return surface.make_world()


def topics(world: World) -> dict[str, str]:
    """What a page may ask to hear of → the name of what it hears."""
    run, approval = world.values["run_id"], world.values["approval_id"]
    return {
        "inbox": "inbox-changed", "runs": "runs-changed", "audit": "audit-changed", f"run:{run}": "run-changed",
        f"approval:{approval}": "approval-changed", f"chat:{run}": "chat-changed",
    }  # fmt: skip


def letters(expected: dict[str, tuple[str, str]], kind: str) -> dict[str, str]:
    return {name.removeprefix(kind): letters for name, (letters, _) in expected.items() if name.startswith(kind)}


def test_each_topic_is_heard_by_the_roles_the_table_says(world: World) -> None:
    asked, run = topics(world), Run.objects.get(pk=world.values["run_id"])
    cookies = [cookie_of(world.people[role]) if role in world.people else b"" for role in ROLES]
    heard = dict[str, set[str]]()

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            streams = {
                role: await stack.enter_async_context(listening(",".join(asked), cookie))
                for role, cookie in zip(ROLES, cookies, strict=True)
            }
            for role, stream in streams.items():
                if role != "nobody":
                    await stream.told()
            await commit(run, "approval.requested")
            # Whoever is to hear nothing could hear as late as somebody who hears it.
            heard["starter"] = {name async for name in streams["starter"].arriving()}
            for role, stream in streams.items():
                heard[role] = heard.get(role, set()) | {name async for name in stream.arriving()}

    play(scene)
    found = {
        topic.partition(":")[0]: "".join(
            "s" if "session.expired" in heard[role] else "o" if name in heard[role] else "h" for role in ROLES
        )
        for topic, name in asked.items()
    }
    assert found == letters(table(), STREAM)


def test_mail_of_each_kind_reaches_the_roles_the_table_says(world: World) -> None:
    """As if everybody wanted it, and something had gone wrong, so that it is queued for everybody."""
    approval = Approval.objects.get(pk=world.values["approval_id"])
    kinds = [kind for kind in Notification.Kind if kind not in ABOUT_MORE]
    for user in world.people.values():
        preferences.set_notifications(user, {kind: ["mail"] for kind in kinds}, None, False, "low")
    for kind in kinds:
        with ledger.transaction():
            for user in world.people.values():
                people.tell_again(approval.pk, user.pk, kind)
    queued = set(Notification.objects.values_list("user", "kind"))
    assert queued >= {(user.pk, kind) for user in world.people.values() for kind in kinds}
    for pk in notify.due_ids(200):
        notify.send(pk)
    assert sent_to(world, kinds) == {kind: said for kind, said in letters(table(), MAIL).items() if kind in kinds}


def test_mail_about_a_comment_and_about_what_became_of_it_reaches_the_roles_the_table_says(world: World) -> None:
    """As if the comment mentioned everybody, and everybody had been told before that the request waits."""
    approval, everybody = Approval.objects.get(pk=world.values["approval_id"]), world.people.values()
    reach = preferences.Reach(follow_ups=True)
    for user in everybody:
        preferences.set_notifications(user, {kind: ["mail"] for kind in ABOUT_MORE}, None, False, "low", reach)
        Notification.objects.create(
            approval=approval, user=user, kind="waiting", state="sent", created_at=Now(), sent_at=Now()
        )
    with ledger.transaction():
        said = Comment.objects.create(approval=approval, author=world.people["starter"], text="Look.", at=Now())
        people.tell_of_mention(said, [user.pk for user in everybody])
        decisions.withdraw(approval.run_id, "The run was cancelled.")
    assert set(Notification.objects.filter(state="queued").values_list("user", "kind")) == {
        (user.pk, kind) for user in everybody for kind in ABOUT_MORE
    }
    for pk in notify.due_ids(200):
        notify.send(pk)
    table_of_more = {kind: said for kind, said in letters(table(), MAIL).items() if kind in ABOUT_MORE}
    assert sent_to(world, ABOUT_MORE) == table_of_more


def sent_to(world: World, kinds: Iterable[str]) -> dict[str, str]:
    """For each kind of mail, in the letters of the table, which roles it was sent to."""
    sent = set(Notification.objects.filter(state="sent").values_list("user", "kind"))
    return {
        kind: "h" + "".join("o" if (world.people[role].pk, kind) in sent else "h" for role in ROLES[1:])
        for kind in kinds
    }
