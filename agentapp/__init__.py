"""The project and the runtime: agents, runs, the loop, the console, the API and the admin."""

from agentapp.celery import app as celery_app

__all__ = ["celery_app"]
