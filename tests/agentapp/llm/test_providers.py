"""What is known of providers before any of them is asked."""

import subprocess
import sys

import pytest

from agentapp.llm import ModelError, providers

CLIENTS = ("pydantic_ai", "openai", "anthropic", "google.genai")
EVERY_PROCESS = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "agentapp.settings"
import django
django.setup()
import agentapp.asgi, agentapp.celery, agentapp.tasks, agentapp.urls
from agentapp.llm import providers
try:
    providers.access("openai:gpt-x")
except Exception as error:
    print(error.code)
print(*sys.modules, sep="\\n")
"""


def test_no_process_imports_a_providers_client_to_start_or_to_check_a_name() -> None:
    """Together they would cost seconds and megabytes in every command and every web process."""
    done = subprocess.run([sys.executable, "-c", EVERY_PROCESS], capture_output=True, text=True, check=True)
    said, *modules = done.stdout.split("\n")
    assert said == "not_configured"
    assert "agentapp.api" in modules
    assert [name for name in modules if name.startswith(CLIENTS)] == []


@pytest.mark.parametrize("name", ["", "gpt-x", "openai", "openai:", "psychic:gpt-x"])
def test_what_names_no_model_is_refused_with_the_known_forms(name: str) -> None:
    with pytest.raises(ModelError, match=r"Known forms: openai:…, anthropic:…, google:…") as caught:
        providers.access(name)
    assert caught.value.code == "unknown_model"
