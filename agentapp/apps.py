from django.apps import AppConfig


class AgentAppConfig(AppConfig):
    name = "agentapp"
    verbose_name = "Agents"

    def ready(self) -> None:
        from agentapp import checks  # noqa: F401  (registers the system checks)
        from agentapp.audit import missing
        from agentapp.telemetry import beginning
        from approvals.proof import verifying

        verifying.told_of.append(missing.runs)
        beginning.begin()
