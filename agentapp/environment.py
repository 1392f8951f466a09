"""Reads settings from the environment, one variable at a time, each with its own error message."""

import ipaddress
import json
import os
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from approvals import referenced


def env[T](name: str, default: T, read: Callable[[str], T], expected: str) -> T:
    """Read one variable, or the file it names. Empty counts as unset. Raises ImproperlyConfigured naming it."""
    # The ledger's key has its own setting for its file, because that file may be created.
    raw = os.environ.get(name, "").strip() if name == "LEDGER_SIGNING_KEY" else referenced.secret(name)
    if not raw:
        return default
    try:
        return read(raw)
    except ValueError as error:
        # A URL, even a misspelt one, may hold a password, and a command anything: neither belongs in a log.
        may_hold_one = "://" in raw or "@" in raw or name.endswith(("_URL", "_TOKEN", "_COMMANDS"))
        hidden = may_hold_one or _is_from_file(name)
        shown = "" if hidden else f"={raw!r}"
        # Error messages often quote a part of the value, such as a bad number, and a file may hold another secret.
        quoted = _is_from_file(name) or any(part in str(error) for part in raw.split(",") if part.strip())
        why = "" if hidden and quoted else f" {error}"
        raise ImproperlyConfigured(f"{name}{shown} cannot be read: expected {expected}.{why}") from (
            None if hidden else error
        )


def _is_from_file(name: str) -> bool:
    return f"{name}_FILE" in os.environ


def read_bool(raw: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if raw.lower() not in words:
        raise ValueError("Use true or false.")
    return words[raw.lower()]


def read_count(raw: str) -> int:
    value = int(raw)
    if value < 0:
        raise ValueError("It cannot be negative.")
    return value


def read_count_from_one(raw: str) -> int:
    if not (value := read_count(raw)):
        raise ValueError("It cannot be zero.")
    return value


def read_list(raw: str) -> list[str]:
    return [item.strip() for item in raw.split(",") if item.strip()]


def read_agent_queues(raw: str) -> dict[str, str]:
    """Queues by the names of their agents."""
    found: dict[str, str] = {}
    for item in read_list(raw):
        named = re.fullmatch(r"([\w-]{1,80})\s*=\s*([a-z0-9][a-z0-9-]{0,39})", item, re.ASCII)
        if named is None:
            raise ValueError(f"{item!r} is not agent=queue, the queue in lower-case letters, digits and dashes.")
        if named[1] in found:
            raise ValueError(f"{named[1]!r} can have one queue.")
        found[named[1]] = named[2]
    return found


def read_networks(raw: str) -> list[IPv4Network | IPv6Network]:
    return [ipaddress.ip_network(item) for item in read_list(raw)]


def read_commands(raw: str) -> dict[str, dict[str, Any]]:
    """Commands by name, each with its words, its folder and what its environment is made of."""
    found = json.loads(raw)
    if not isinstance(found, dict):
        raise ValueError("It must be a JSON object.")
    return {name: _command(name, described) for name, described in found.items()}


def _command(name: str, described: Any) -> dict[str, Any]:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,59}", name):
        raise ValueError(f"{name!r} is not a name of lower-case letters, digits and dashes.")
    usual = {"command": [], "cwd": "/", "environment": {}, "inherit": ["PATH"], "credentials": {}}
    if not isinstance(described, dict) or set(described) - set(usual):
        raise ValueError(f"{name} must be an object of {', '.join(usual)}.")
    command = {**usual, **described}
    words = command["command"]
    if not _are_texts(words) or not words:
        raise ValueError(f"The command of {name} must be a list of words.")
    for key in ("environment", "credentials"):
        texts = command[key]
        if not isinstance(texts, dict) or not _are_texts([*texts, *texts.values()]):
            raise ValueError(f"The {key} of {name} must be an object of texts.")
    if not _are_texts(command["inherit"]) or not _are_texts([command["cwd"]]):
        raise ValueError(f"In {name}, inherit must be a list of names and cwd a folder.")
    if "LEDGER_SIGNING_KEY" in command["inherit"]:
        raise ValueError(f"{name} cannot inherit LEDGER_SIGNING_KEY, which is kept from tools.")
    return command


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and "\0" not in value for value in values)


def read_reasons(raw: str) -> list[str]:
    reasons = [reason.strip() for reason in raw.split(";") if reason.strip()]
    if not 1 <= len(reasons) <= 3 or any(len(reason) > 60 for reason in reasons):
        raise ValueError("Give one to three reasons of up to 60 characters, separated by semicolons.")
    return reasons


def read_provider_ids(raw: str) -> list[str]:
    ids = read_list(raw)
    if wrong := [id for id in ids if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", id)]:
        raise ValueError(f"{wrong[0]!r} is not such a name.")
    return ids


def read_slug(raw: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", raw):
        raise ValueError("Use only lower-case letters, digits and dashes.")
    return raw


def read_redis_url(raw: str) -> str:
    if not raw.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("It must start with redis://, rediss:// or unix://.")
    return raw


def read_fingerprints(raw: str) -> tuple[str, ...]:
    found = tuple(text.lower() for text in read_list(raw))
    if any(len(bytes.fromhex(text)) != 32 for text in found):
        raise ValueError
    return found


def read_web_address(raw: str) -> str:
    if not raw.startswith(("http://", "https://")):
        raise ValueError("It must start with http:// or https://.")
    return raw.rstrip("/")


def read_token(raw: str) -> str:
    if len(raw) < 16 or not raw.isascii():
        raise ValueError("Use a long random text.")
    return raw


def read_time_zone(raw: str) -> str:
    try:
        return zoneinfo.ZoneInfo(raw).key
    except (zoneinfo.ZoneInfoNotFoundError, OSError) as error:
        raise ValueError("There is no such time zone.") from error


def read_choice(*choices: str) -> Callable[[str], str]:
    def read(raw: str) -> str:
        if raw not in choices:
            raise ValueError(f"Use one of {', '.join(choices)}.")
        return raw

    return read


def env_bool(name: str, default: bool) -> bool:
    return env(name, default, read_bool, "true or false")


def env_count(name: str, default: int) -> int:
    return env(name, default, read_count, "a whole number, zero or more")


def env_count_from_one(name: str, default: int) -> int:
    """For settings that cannot work with zero, such as the size of a connection pool."""
    return env(name, default, read_count_from_one, "a whole number, one or more")


def env_folder(name: str, default: Path) -> Path:
    """A folder, created if missing. Raises ImproperlyConfigured naming its variable."""
    folder = env(name, default, Path, "a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        shown = "" if _is_from_file(name) else f"={str(folder)!r}"
        raise ImproperlyConfigured(f"{name}{shown} cannot be created: {error.strerror}.") from (
            None if _is_from_file(name) else error
        )
    return folder


def env_list(name: str, default: list[str]) -> list[str]:
    return env(name, default, read_list, "a comma-separated list")


def oidc_provider(id: str) -> dict[str, object]:
    """One OpenID Connect provider, from the variables whose names begin with OIDC_ and its id."""
    prefix = f"OIDC_{id.upper().replace('-', '_')}_"
    issuer = env(prefix + "ISSUER", "", read_web_address, "the address of the provider")
    client = env(prefix + "CLIENT_ID", "", str, "a client id")
    if not issuer or not client:
        raise ImproperlyConfigured(f"OIDC_PROVIDERS names {id!r}, so {prefix}ISSUER and {prefix}CLIENT_ID must be set.")
    return {
        "provider_id": id,
        "name": env(prefix + "NAME", id.title(), str, "a name"),
        "client_id": client,
        "secret": env(prefix + "CLIENT_SECRET", "", str, "a secret"),
        "settings": {
            "server_url": issuer,
            "oauth_pkce_enabled": True,
            # People are found by their address. Only an address that the provider has checked counts.
            "verified_email": env_bool(prefix + "TRUST_EMAIL", False),
            # By the specification, a provider asked for a new sign-in says when the person signed in.
            "trust_renewal": env_bool(prefix + "TRUST_RENEWAL", False),
        },
    }


def otlp_traces_url() -> str:
    """Where OpenTelemetry's own variables send traces. Empty: nowhere."""
    off = env("OTEL_SDK_DISABLED", False, read_bool, "true or false")
    if off or env("OTEL_TRACES_EXPORTER", "otlp", str, "otlp or none") == "none":
        return ""
    base = env("OTEL_EXPORTER_OTLP_ENDPOINT", "", read_web_address, "the address of a collector")
    own = env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", read_web_address, "the address of a collector")
    return own or (f"{base}/v1/traces" if base else "")


def otlp_headers() -> str:
    """Headers from the file that OpenTelemetry's variables name. Empty: no file, so its library reads the variables."""
    named = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
    return next((found for name in named if _is_from_file(name) and (found := referenced.secret(name))), "")


@dataclass(frozen=True)
class Ledger:
    """Where the key that signs the ledger is, and where its checkpoints are noted outside the database."""

    signing_key: str = field(repr=False)
    signing_key_file: Path
    makes_key: bool
    """Whether a key is made in that file if there is none."""
    anchor_file: Path
    anchor_url: str
    checkpoint_seconds: int = 300
    """How often a checkpoint is signed, if something has happened. The ledger is looked after once a minute."""
    trusted_keys: tuple[str, ...] = ()
    """Fingerprints of earlier keys that are trusted as well as the one in use."""


def read_ledger(folder: Path, embedded: bool) -> Ledger:
    # The code that signs finds out whether it is a key, without quoting it.
    key = env("LEDGER_SIGNING_KEY", "", str, "a key")
    named = env("LEDGER_SIGNING_KEY_FILE", None, Path, "a file")
    if key and named:
        # After a change, the old key would stay in use unnoticed.
        raise referenced.Unreadable.named_twice("LEDGER_SIGNING_KEY")
    key_file = named or folder / "ledger.key"
    return Ledger(
        signing_key=key,
        signing_key_file=key_file,
        # Elsewhere each machine would make its own key, next to the data it vouches for.
        makes_key=embedded and key_file == folder / "ledger.key",
        anchor_file=env("LEDGER_ANCHOR_FILE", folder / "checkpoints.jsonl", Path, "a file"),
        anchor_url=env("LEDGER_ANCHOR_URL", "", read_web_address, "an address"),
        checkpoint_seconds=max(60, env_count_from_one("LEDGER_CHECKPOINT_SECONDS", 300)),
        trusted_keys=env("LEDGER_TRUSTED_KEYS", (), read_fingerprints, "fingerprints, with commas in between"),
    )
