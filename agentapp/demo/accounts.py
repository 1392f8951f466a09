"""The people of the demo. Their password is printed, so they exist only where DEBUG is on."""

from dataclasses import dataclass

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
    for account in ACCOUNTS:
        user = User.objects.filter(username=account.username).first()
        if user is None:
            user = User.objects.create_user(
                account.username,
                f"{account.username}@northwind.example",
                PASSWORD,
                first_name=account.first_name,
                last_name=account.last_name,
                is_staff=account.role == "admin",
            )
            user.groups.set(Group.objects.filter(name=account.role))
        people[account.username] = user
    return people
