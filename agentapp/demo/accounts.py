"""The people of the demo. Their password is printed, so they exist only where DEBUG is on."""

from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User

from agentapp.roles import ensure_roles

PASSWORD = "countersign-demo"  # noqa: S105  (printed by the command; refused where DEBUG is off)


@dataclass(frozen=True)
class Account:
    username: str
    first_name: str
    last_name: str
    role: str
    purpose: str


ACCOUNTS = (
    Account("sam", "Sam", "Ortiz", "operator", "starts runs; may not decide about them"),
    Account("dana", "Dana", "Whitfield", "approver", "approves, edits, rejects"),
    Account("marco", "Marco", "Reyes", "approver", "the second approver"),
    Account("mia", "Mia", "Lund", "manager", "reads everything, decides nothing"),
    Account("ada", "Ada", "Stern", "admin", "configures agents, tools and rules at /admin/"),
)


def make_accounts() -> dict[str, User]:
    """The demo's people by their names; those that are there already are left as they are."""
    ensure_roles()
    people = {}
    hashed = ""  # once for all: it is slow on purpose, and everybody's is the same
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
        people[account.username] = user
    return people
