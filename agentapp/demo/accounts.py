"""The people of the demo. Their password is printed, so they exist only if DEBUG is on."""

from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, Permission, User

from agentapp.roles import ensure_roles

PASSWORD = "countersign-demo"  # noqa: S105  (printed by the command; refused where DEBUG is off)


@dataclass(frozen=True)
class Account:
    username: str
    first_name: str
    last_name: str
    role: str
    purpose: str
    rights: tuple[str, ...] = ()
    """In addition to the role's: codenames of permissions about approvals."""
    teams: tuple[str, ...] = ()
    """Groups of the configuration file that they are in, in addition to the role's."""


ACCOUNTS = (
    Account("sam", "Sam", "Ortiz", "operator", "starts runs; may not decide about them"),
    Account(
        "dana",
        "Dana",
        "Whitfield",
        "approver",
        "approves, edits, rejects; allows calls in advance",
        ("add_grant",),
        ("desk",),
    ),
    Account("marco", "Marco", "Reyes", "approver", "the second approver", teams=("desk",)),
    Account(
        "nora", "Nora", "Ekdal", "approver", "leads the desk: what waits too long or is too much", teams=("leads",)
    ),
    Account("mia", "Mia", "Lund", "manager", "reads everything, decides nothing"),
    Account("ada", "Ada", "Stern", "admin", "configures agents, tools and rules at /admin/"),
)


def make_accounts() -> dict[str, User]:
    """The demo's people by their names. Those who already exist are left as they are."""
    ensure_roles()
    people = {}
    hashed = ""  # hashed once: it is slow on purpose, and everybody's password is the same
    for account in ACCOUNTS:
        user = User.objects.filter(username=account.username).first()
        if user is None:
            hashed = hashed or make_password(PASSWORD)
            user = User.objects.create(
                username=account.username,
                email=f"{account.username}@northwind.example",
                password=hashed,
                first_name=account.first_name,
                last_name=account.last_name,
                is_staff=account.role == "admin",
            )
            user.groups.set(Group.objects.filter(name=account.role))
            rights = Permission.objects.filter(content_type__app_label="approvals", codename__in=account.rights)
            user.user_permissions.set(rights)
        people[account.username] = user
    return people


def join_teams(people: dict[str, User]) -> None:
    """Put everybody into their groups of the configuration file."""
    for account in ACCOUNTS:
        people[account.username].groups.add(*Group.objects.filter(name__in=account.teams))
