from django.apps import AppConfig


class AgentAppConfig(AppConfig):
    name = "agentapp"
    verbose_name = "Agents"

    def ready(self) -> None:
        from agentapp import checks  # noqa: F401  (registers the system checks)
