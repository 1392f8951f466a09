from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "agentapp.demo"
    label = "demo"
    verbose_name = "Demo shop"
