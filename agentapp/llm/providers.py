"""Providers by name, and their models as the environment configures them.

A provider's client takes seconds to import, so it is imported only when its first model is made: web processes and
commands need only the names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agentapp.llm.contract import ModelError
from approvals import referenced

if TYPE_CHECKING:
    from pydantic_ai.models import Model


@dataclass(frozen=True)
class Provider:
    """Where a provider's key and address come from, and how to make one of its models."""

    key_variables: tuple[str, ...]
    """The first that is set counts."""
    url_variable: str
    default_url: str
    build: Callable[["Access"], "Model"]
    key_optional_elsewhere: bool = False
    """A self-hosted server, set with `url_variable`, may need no key."""


@dataclass(frozen=True)
class Access:
    """How one model is reached at present. Equal values share one client."""

    provider: str
    model: str
    base_url: str
    key: str

    def build(self) -> "Model":
        return PROVIDERS[self.provider].build(self)


def access(name: str) -> Access:
    """How to reach "provider:model" in the present environment. Raises ModelError, never retryable."""
    if problem := name_problem(name):
        raise ModelError(problem, code="unknown_model")
    provider_name, _, model = name.partition(":")
    provider = PROVIDERS[provider_name]
    base_url = _variable(provider.url_variable)
    if base_url and (urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).netloc):
        raise ModelError(f"{provider.url_variable} must be an http or https address.", code="not_configured")
    key = next(filter(None, map(_variable, provider.key_variables)), "")
    if not key:
        if not (base_url and provider.key_optional_elsewhere):
            variables = " or ".join(provider.key_variables)
            raise ModelError(f"{name} needs a key: set {variables} for the worker.", code="not_configured")
        key = "none"
    return Access(provider_name, model.strip(), base_url or provider.default_url, key)


def name_problem(name: str) -> str:
    """Why a text is not a model name, "provider:model". Empty: it has the right form; the model may not exist."""
    provider, _, model = name.partition(":")
    if provider in PROVIDERS and model.strip():
        return ""
    return f"{name[:120]!r} is not a model name. Known forms: {', '.join(f'{known}:…' for known in PROVIDERS)}."


def secrets() -> list[str]:
    """Values that must never be shown: every provider's keys, and passwords inside addresses."""
    found = {_variable(variable) for provider in PROVIDERS.values() for variable in provider.key_variables}
    found |= {urlsplit(_variable(provider.url_variable)).password or "" for provider in PROVIDERS.values()}
    return sorted(filter(None, found), key=len, reverse=True)


def _variable(name: str) -> str:
    try:
        return referenced.secret(name)
    except referenced.Unreadable:
        return ""  # treated as not set, which is reported when a key is needed


# No request takes longer: each has its own deadline.
_SECONDS = 600.0

# The loop decides on retries and records them, so the clients must not retry on their own.


def _openai(access: Access) -> "Model":
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    from agentapp.llm import bounded

    client = bounded.client(_SECONDS)
    provider = OpenAIProvider(base_url=access.base_url, api_key=access.key, http_client=client)
    provider.client.max_retries = 0
    compatible = access.base_url != _OPENAI_URL and not access.model.startswith(_OPENAI_FAMILIES)
    # Many OpenAI-compatible servers do not know OpenAI's newer name for the limit.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False) if compatible else None
    return OpenAIChatModel(access.model, provider=provider, profile=profile)


def _anthropic(access: Access) -> "Model":
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    from agentapp.llm import bounded

    client = bounded.client(_SECONDS)
    provider = AnthropicProvider(base_url=access.base_url, api_key=access.key, http_client=client)
    provider.client.max_retries = 0
    return AnthropicModel(access.model, provider=provider)


def _google(access: Access) -> "Model":
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    from agentapp.llm import bounded

    client = bounded.client(_SECONDS)
    provider = GoogleProvider(base_url=access.base_url, api_key=access.key, http_client=client)
    return GoogleModel(access.model, provider=provider)


_OPENAI_URL = "https://api.openai.com/v1"
_OPENAI_FAMILIES = ("gpt-", "chatgpt-", "o1", "o3", "o4", "ft:")

PROVIDERS: dict[str, Provider] = {
    "openai": Provider(("OPENAI_API_KEY",), "OPENAI_BASE_URL", _OPENAI_URL, _openai, key_optional_elsewhere=True),
    "anthropic": Provider(("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL", "https://api.anthropic.com", _anthropic),
    "google": Provider(
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        "GOOGLE_BASE_URL",
        "https://generativelanguage.googleapis.com",
        _google,
    ),
}
