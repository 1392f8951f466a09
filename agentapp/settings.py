"""All settings, from the environment, with defaults that need no server.

A value that cannot be read stops the start and names its variable. What would be unsafe in
production (a default secret key, an in-memory broker) is reported by `agentapp/checks.py`.
"""

import os
import zoneinfo
from collections.abc import Callable
from pathlib import Path

import dj_database_url
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP

BASE_DIR = Path(__file__).resolve().parent.parent


def env[T](name: str, default: T, read: Callable[[str], T], expected: str) -> T:
    """Read one variable; empty counts as unset. Raises ImproperlyConfigured naming the variable."""
    raw = os.environ.get(name, "").strip()
    if not raw:
        return default
    try:
        return read(raw)
    except ValueError as error:
        # A URL may hold a password, which does not belong in a log.
        shown = "" if "://" in raw else f"={raw!r}"
        raise ImproperlyConfigured(f"{name}{shown} cannot be read: expected {expected}. {error}") from error


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


def read_list(raw: str) -> list[str]:
    return [item.strip() for item in raw.split(",") if item.strip()]


def read_redis_url(raw: str) -> str:
    if not raw.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("It starts with redis://, rediss:// or unix://.")
    return raw


def read_web_address(raw: str) -> str:
    if not raw.startswith(("http://", "https://")):
        raise ValueError("It starts with http:// or https://.")
    return raw.rstrip("/")


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


def env_list(name: str, default: list[str]) -> list[str]:
    return env(name, default, read_list, "a comma-separated list")


# --- What kind of place this is ----------------------------------------------------------------

DEBUG = env_bool("DEBUG", False)
DATA_DIR = env("DATA_DIR", BASE_DIR / "data", Path, "a folder")
WORKSPACE_NAME = env("WORKSPACE_NAME", "Countersign", str, "a name")
DEFAULT_SECRET_KEY = "development-only-key-do-not-use-where-it-matters"  # noqa: S105
SECRET_KEY = env("SECRET_KEY", DEFAULT_SECRET_KEY, str, "a long random text")
ALLOWED_HOSTS = env_list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env_list("CSRF_TRUSTED_ORIGINS", [])

# --- Runs and approvals ------------------------------------------------------------------------

TOOL_MODULES = env_list("TOOL_MODULES", ["agentapp.demo.tools"])
# A run may bring its own list of model replies. For demos and tests; never on where it matters.
ALLOW_SCRIPTED_RUNS = env_bool("ALLOW_SCRIPTED_RUNS", DEBUG)
UNDO_HOLD_SECONDS = env_count("UNDO_HOLD_SECONDS", 5)
APPROVAL_EXPIRES_SECONDS = env_count("APPROVAL_EXPIRES_SECONDS", 24 * 3600)
# An approval that the workers could not use in this time is asked again.
APPROVAL_USE_WITHIN_SECONDS = env_count("APPROVAL_USE_WITHIN_SECONDS", 3600)
# Lease + the sweep's interval stay under 30 s: the longest a dead worker can hold a run.
LEASE_SECONDS = env_count("LEASE_SECONDS", 12)
SWEEP_SECONDS = env_count("SWEEP_SECONDS", 15)
TIME_SLICE_SECONDS = env_count("TIME_SLICE_SECONDS", 20)
MODEL_TIMEOUT_SECONDS = env_count("MODEL_TIMEOUT_SECONDS", 120)
MODEL_ATTEMPTS = env_count("MODEL_ATTEMPTS", 3)
# What a new breaker begins with: failures in a row that open it, and how long it lets nothing through.
BREAKER_THRESHOLD = env_count("BREAKER_THRESHOLD", 3)
BREAKER_COOLDOWN_SECONDS = env_count("BREAKER_COOLDOWN_SECONDS", 60)

# --- Django ------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "ninja",
    "approvals",
    "agentapp",
    *(["agentapp.demo"] if "agentapp.demo.tools" in TOOL_MODULES else []),
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "agentapp.urls"
WSGI_APPLICATION = "agentapp.wsgi.application"
ASGI_APPLICATION = "agentapp.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.csp",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "agentapp.console.shell.context",
            ],
        },
    }
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = env("TIME_ZONE", "UTC", read_time_zone, "a time zone name, as in Europe/Berlin")
USE_TZ = True
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_AGE = 8 * 3600
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

STATIC_URL = "/static/"
STATIC_ROOT = env("STATIC_ROOT", BASE_DIR / "staticfiles", Path, "a folder")
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = DEBUG
if DEBUG:
    STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # else WhiteNoise warns; production has run collectstatic


def mailer(server: str) -> dict[str, object]:
    """How mail is sent. Without a server it is written to the console."""
    if not server:
        return {"BACKEND": "django.core.mail.backends.console.EmailBackend"}
    security = env("EMAIL_SECURITY", "starttls", read_choice("starttls", "tls", "none"), "the mail server's security")
    return {
        "BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "OPTIONS": {
            "host": server,
            "port": env_count("EMAIL_PORT", 587),
            "username": env("EMAIL_USER", "", str, "a name"),
            "password": env("EMAIL_PASSWORD", "", str, "a password"),
            "use_tls": security == "starttls",
            "use_ssl": security == "tls",
            "timeout": 10,
        },
    }


MAILERS = {"default": mailer(env("EMAIL_HOST", "", str, "the name of a mail server"))}
DEFAULT_FROM_EMAIL = env("DEFAULT_FROM_EMAIL", "countersign@localhost", str, "an address")
# Links in notifications are absolute; this is where the console is reached.
BASE_URL = env("BASE_URL", "http://127.0.0.1:8000", read_web_address, "the address of the console")

# --- Database ----------------------------------------------------------------------------------


def database(url: str) -> dict[str, object]:
    """One database from a URL. SQLite gets WAL and immediate transactions, PostgreSQL a pool."""
    config: dict[str, object] = dict(dj_database_url.parse(url))
    if config["ENGINE"] == "django.db.backends.sqlite3":
        config["OPTIONS"] = {
            # Taking the write lock at BEGIN is what makes "look, then change" safe on SQLite.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
        }
    elif config["ENGINE"] == "django.db.backends.postgresql":
        config["OPTIONS"] = {"pool": {"min_size": 1, "max_size": env_count("DATABASE_POOL_SIZE", 16), "timeout": 10}}
    else:
        raise ValueError("Only sqlite:// and postgres:// are supported.")
    return config


DATA_DIR.mkdir(parents=True, exist_ok=True)  # SQLite makes the file, not its folder
DATABASES = {
    "default": env("DATABASE_URL", database(f"sqlite:///{DATA_DIR / 'db.sqlite3'}"), database, "a database URL")
}

# --- Celery ------------------------------------------------------------------------------------

REDIS_URL = env("REDIS_URL", "", read_redis_url, "a Redis URL")
EMBEDDED = not REDIS_URL
# The form with a host: plain memory:// makes kombu log a warning for each connection.
CELERY_BROKER_URL = REDIS_URL or "memory://localhost//"
CELERY_BROKER_TRANSPORT_OPTIONS = (
    {"polling_interval": 0.02}
    if EMBEDDED
    # A message held by a killed worker comes back in visibility_timeout + 2 s. The sweep is
    # faster; this only empties the broker. Longer than any time slice, or work is delivered twice.
    else {"visibility_timeout": 600, "unacked_restore_interval": 2, "unacked_restore_throttle": 1}
)
# Installations that share a Redis need a queue each.
CELERY_TASK_DEFAULT_QUEUE = env("QUEUE_NAME", "countersign", str, "a name")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# With 1 or more the memory transport stalls to a few messages a second.
CELERY_WORKER_PREFETCH_MULTIPLIER = 0 if EMBEDDED else 1
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
# True makes a threads pool die when the broker connection drops.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"  # the sweep repeats; nothing is worth a schedule file
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "agentapp.tasks.sweep", "schedule": float(SWEEP_SECONDS)},
    "notifications": {"task": "approvals.tasks.send_queued", "schedule": float(SWEEP_SECONDS)},
}

# --- Security headers --------------------------------------------------------------------------

SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF],
    "style-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "font-src": [CSP.SELF],
    "connect-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
    "object-src": [CSP.NONE],
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_COOKIES = env_bool("SECURE_COOKIES", not DEBUG)
SESSION_COOKIE_SECURE = SECURE_COOKIES
CSRF_COOKIE_SECURE = SECURE_COOKIES
SECURE_SSL_REDIRECT = env_bool("SECURE_SSL_REDIRECT", False)
SECURE_HSTS_SECONDS = env_count("SECURE_HSTS_SECONDS", 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = env_bool("SECURE_HSTS_INCLUDE_SUBDOMAINS", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env_bool("BEHIND_PROXY", False) else None

# The whole request body; model arguments are held to 256 KiB separately.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024

LOG_LEVEL = env("LOG_LEVEL", "INFO", read_choice("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "a log level")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
    "loggers": {name: {"level": "WARNING"} for name in ("celery", "httpx2", "httpx", "google_genai")},
}
