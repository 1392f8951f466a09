from django.apps import AppConfig
from django.conf import settings
from django.db.backends.signals import connection_created


class AgentAppConfig(AppConfig):
    name = "agentapp"
    verbose_name = "Agents"

    def ready(self) -> None:
        from agentapp import checks, old_sessions  # noqa: F401  (the checks register themselves)
        from agentapp.audit import rows
        from agentapp.telemetry import beginning
        from approvals import database
        from approvals.proof import verifying

        verifying.told_of.append(rows.runs)
        verifying.compared.append(rows.compare)
        beginning.begin()
        old_sessions.end_none_at_sign_in()
        if settings.PREPARED_STATEMENTS:
            connection_created.connect(database.renew_plans)
