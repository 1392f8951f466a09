"""Providers by name, and their models as the environment configures them.

A provider's client takes seconds to import and is imported when its first model is made: web processes and commands
ask here for names alone.
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
    """Where a provider's key and address come from, and how a model of it is made."""

    key_variables: tuple[str, ...]
    """The first that is set counts."""
    url_variable: str
    default_url: str
    build: Callable[["Access"], "Model"]
    key_optional_elsewhere: bool = False
    """A server of one's own, named by `url_variable`, may ask for no key."""


@dataclass(frozen=True)
class Access:
    """One model as it is reached right now. Equal values share one client."""

    provider: str
    model: str
    base_url: str
    key: str

    def build(self) -> "Model":
        return PROVIDERS[self.provider].build(self)


def access(name: str) -> Access:
    """Who answers to "provider:model", by the environment of this moment. Raises ModelError, never retryable."""
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
    """Why a text is no name of a model, "provider:model". Empty: it is one, of which nothing is known yet."""
    provider, _, model = name.partition(":")
    if provider in PROVIDERS and model.strip():
        return ""
    return f"{name[:120]!r} names no model. Known forms: {', '.join(f'{known}:…' for known in PROVIDERS)}."


def secrets() -> list[str]:
    """Values that must never be shown: every provider's keys, and passwords inside addresses."""
    found = {_variable(variable) for provider in PROVIDERS.values() for variable in provider.key_variables}
    found |= {urlsplit(_variable(provider.url_variable)).password or "" for provider in PROVIDERS.values()}
    return sorted(filter(None, found), key=len, reverse=True)


def _variable(name: str) -> str:
    try:
        return referenced.secret(name)
    except referenced.Unreadable:
        return ""  # as if it were not set: which is said where a key is needed


# No request has longer: each has a deadline of its own.
_SECONDS = 600.0

# Trying again is recorded and decided by the loop, so the clients must not do it on their own.


def _openai(access: Access) -> "Model":
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    from agentapp.llm import bounded

    client = bounded.client(_SECONDS)
    provider = OpenAIProvider(base_url=access.base_url, api_key=access.key, http_client=client)
    provider.client.max_retries = 0
    compatible = access.base_url != _OPENAI_URL and not access.model.startswith(_OPENAI_FAMILIES)
    # OpenAI's newer name of the limit is unknown to many servers that speak its language.
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
