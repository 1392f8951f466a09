"""All settings, from the environment, with defaults that need no server.

A value that cannot be read stops the process from starting; the error names the variable. `agentapp/checks.py`
reports what would be unsafe in production (a default secret key, an in-memory broker).
"""

from pathlib import Path
from ssl import CERT_REQUIRED

from django.utils.csp import CSP

from agentapp import connections, logs
from agentapp.environment import (
    env,
    env_bool,
    env_count,
    env_count_from_one,
    env_folder,
    env_list,
    oidc_provider,
    otlp_headers,
    otlp_traces_url,
    read_agent_queues,
    read_choice,
    read_commands,
    read_ledger,
    read_networks,
    read_provider_ids,
    read_reasons,
    read_redis_url,
    read_slug,
    read_time_zone,
    read_token,
    read_web_address,
)
from approvals import step_up
from approvals.business_hours import BusinessHours

BASE_DIR = Path(__file__).resolve().parent.parent

# --- The installation --------------------------------------------------------------------------

DEBUG = env_bool("DEBUG", False)
DATA_DIR = env_folder("DATA_DIR", BASE_DIR / "data")  # SQLite creates its file, but not the folder
WORKSPACE_NAME = env("WORKSPACE_NAME", "Countersign", str, "a name")
DEFAULT_SECRET_KEY = "development-only-key-do-not-use-where-it-matters"  # noqa: S105
SECRET_KEY = env("SECRET_KEY", DEFAULT_SECRET_KEY, str, "a long random text")
SECRET_KEY_FALLBACKS = env_list("SECRET_KEY_FALLBACKS", [])  # earlier keys: what they signed is still valid
ALLOWED_HOSTS = env_list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env_list("CSRF_TRUSTED_ORIGINS", [])

# --- Runs and approvals ------------------------------------------------------------------------

TOOL_MODULES = env_list(
    "TOOL_MODULES",
    ["agentapp.demo.tools", "agentapp.demo.chat_tools", "agentapp.demo.amends", "agentapp.tools.planning"],
)
# Whether a run may bring its own list of model replies. For demos and tests only; never in production.
ALLOW_SCRIPTED_RUNS = env_bool("ALLOW_SCRIPTED_RUNS", DEBUG)
# Private networks that requests to configured addresses may reach, such as 10.1.2.0/24.
OUTBOUND_NETWORKS = env("OUTBOUND_NETWORKS", read_networks(""), read_networks, "networks with commas between them")
# The commands of MCP servers that run on this machine. They can be set only here: naming one means running a program.
MCP_COMMANDS = env("MCP_COMMANDS", read_commands("{}"), read_commands, "an object of commands in JSON")
# How often every MCP server is asked for its tools again. 0: only when a person asks for it.
SOURCE_REFRESH_SECONDS = env_count("SOURCE_REFRESH_SECONDS", 300)
UNDO_HOLD_SECONDS = env_count("UNDO_HOLD_SECONDS", 5)
APPROVAL_EXPIRES_SECONDS = env_count_from_one("APPROVAL_EXPIRES_SECONDS", 24 * 3600)
# Whether a draft of a rule must be activated by someone other than the person who last changed it.
RULES_NEED_SECOND_PERSON = env_bool("RULES_NEED_SECOND_PERSON", False)
# How people must at least show who they are when they approve, by risk and by effect class.
STEP_UP: dict[str, str] = env("STEP_UP", {}, step_up.parse, "levels, such as high=password,irreversible=signed")
APPROVAL_TARGET_SECONDS = env_count("APPROVAL_TARGET_SECONDS", 0)  # if the rule sets none; 0: no target
# A model that looks at calls of this risk and above before people do, such as openai:gpt-5. Empty: none does.
SECOND_LOOK_MODEL = env("SECOND_LOOK_MODEL", "", str, "a model")
SECOND_LOOK_FROM = env("SECOND_LOOK_FROM", "high", read_choice("low", "medium", "high", "critical"), "a risk")
FAMILY_MAX_RUNS = env_count_from_one("FAMILY_MAX_RUNS", 100)  # a run and all the runs that agents ask agents for
GRANT_MAX_DAYS = env_count("GRANT_MAX_DAYS", 30)
# A call whose approval the workers could not use within this time does not run, and the agent is told.
APPROVAL_USE_WITHIN_SECONDS = env_count_from_one("APPROVAL_USE_WITHIN_SECONDS", 3600)
# How many runs that have not ended one person may have, by hand and by token. 0: any number.
OPEN_RUNS_PER_PERSON = env_count("OPEN_RUNS_PER_PERSON", 5000)
# A customer who writes faster is asked to wait.
CUSTOMER_MESSAGES_PER_MINUTE = env_count("CUSTOMER_MESSAGES_PER_MINUTE", 10)
# How many requests an API token may make in a minute. 0: any number.
API_REQUESTS_PER_MINUTE = env_count("API_REQUESTS_PER_MINUTE", 1200)
# How long a claimed request stays with the person who claimed it if they do nothing.
CLAIM_SECONDS = env_count("CLAIM_SECONDS", 600)
# The reasons offered for a rejection, before "Other".
REJECTION_REASONS = env(
    "REJECTION_REASONS", ["Wrong amount or details", "Not allowed", "Need more evidence"], read_reasons, "some reasons"
)
# How long at most a request's clock is stopped while its agent is asked something.
QUESTION_SECONDS = env_count("QUESTION_SECONDS", 600)
# Lease + the sweep's interval stay under 30 s: the longest a dead worker can hold a run.
LEASE_SECONDS = env_count_from_one("LEASE_SECONDS", 12)
SWEEP_SECONDS = env_count_from_one("SWEEP_SECONDS", 15)
# How long after a call began it may be repeated by itself, with its key: where it goes to, keys are then forgotten.
KEY_HOLDS_HOURS = env_count("KEY_HOLDS_HOURS", 24)
# How long a process keeps the configuration that it has read while no event says that it changed.
CONFIGURATION_KEPT_SECONDS = env_count("CONFIGURATION_KEPT_SECONDS", 10)
TIME_SLICE_SECONDS = env_count("TIME_SLICE_SECONDS", 20)
# How many reads of one step run at once. Each may hold its own database connection.
PARALLEL_READS = env_count("PARALLEL_READS", 8)
MODEL_TIMEOUT_SECONDS = env_count_from_one("MODEL_TIMEOUT_SECONDS", 120)
MODEL_ATTEMPTS = env_count("MODEL_ATTEMPTS", 3)
# The values for a new breaker: how many failures in a row open it, and how long it then lets nothing through.
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
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
    "django_htmx",
    "ninja",
    "approvals",
    "agentapp",
    *(["agentapp.demo"] if "agentapp.demo.tools" in TOOL_MODULES else []),
]

MIDDLEWARE = [
    "agentapp.telemetry.requests.Requests",
    # These set headers on every response that comes after them, including static files and refusals.
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "agentapp.static_files.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "agentapp.console.signed_out.SignedOutMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "agentapp.console.last_seen.note",
    "agentapp.discretion.middleware",
    "django_htmx.middleware.HtmxMiddleware",
    "agentapp.console.problems.FoundNothing",
    "agentapp.console.problems.say_what_is_no_page",
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
# Rule conditions can use both: which installation this is, and when people are at work.
ENVIRONMENT = env("ENVIRONMENT", "", read_slug, "a name of lower-case letters, digits and dashes, such as production")
BUSINESS_HOURS = env("BUSINESS_HOURS", BusinessHours(), BusinessHours.parse, "hours, such as mon-fri 09:00-17:00")
TIME_ZONE = env("TIME_ZONE", "UTC", read_time_zone, "a time zone name, such as Europe/Berlin")
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "agentapp.formats"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

STATIC_URL = "/static/"
STATIC_ROOT = env("STATIC_ROOT", BASE_DIR / "staticfiles", Path, "a folder")
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "agentapp.static_files.SmallStaticFiles"},
}
WHITENOISE_USE_FINDERS = DEBUG
if DEBUG:
    STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # else WhiteNoise warns; production has run collectstatic


def mailer(server: str) -> dict[str, object]:
    """How mail is sent. Without a server, mail is written to the console."""
    if not server:
        return {"BACKEND": "django.core.mail.backends.console.EmailBackend"}
    security = env("EMAIL_SECURITY", "starttls", read_choice("starttls", "tls", "none"), "the mail server's security")
    return {
        "BACKEND": "approvals.smtp.EmailBackend",
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


_MAIL_SERVER = env("EMAIL_HOST", "", str, "the name of a mail server")
MAILERS = {"default": mailer(_MAIL_SERVER)}
DEFAULT_FROM_EMAIL = env("DEFAULT_FROM_EMAIL", "countersign@localhost", str, "an address")
# The module that knows how people want to be told. `approvals` imports it by this name.
NOTIFICATION_MANNERS = "agentapp.preferences"
# Links in notifications are absolute; this is where the console is reached.
BASE_URL = env("BASE_URL", "", read_web_address, "the address of the console")
BASE_URL_IS_SET, BASE_URL = bool(BASE_URL), BASE_URL or "http://127.0.0.1:8000"

# --- Database ----------------------------------------------------------------------------------

_POOL_SIZE = env_count_from_one("DATABASE_POOL_SIZE", 16)
DATABASE_STATEMENT_SECONDS = env_count("DATABASE_STATEMENT_SECONDS", 30)  # of pages and the API; 0: no limit
MIGRATION_LOCK_SECONDS = env_count("MIGRATION_LOCK_SECONDS", 5)  # for a table, behind which others wait; 0: for ever
# For workers, which run the same few queries all day. The queries of pages take too many forms.
PREPARED_STATEMENTS = env_bool("PREPARED_STATEMENTS", False)
# Where web processes listen if DATABASE_URL leads to a pooler that gives each transaction another connection.
DATABASE_LISTENED_TO = env("DATABASE_LISTEN_URL", None, connections.listening, "the URL of PostgreSQL itself")


def database(url: str) -> dict[str, object]:
    return connections.database(url, _POOL_SIZE, PREPARED_STATEMENTS, DATABASE_LISTENED_TO is not None)


DATABASES = {
    "default": env("DATABASE_URL", database(f"sqlite:///{DATA_DIR / 'db.sqlite3'}"), database, "a database URL")
}

# --- Celery and cache --------------------------------------------------------------------------

REDIS_URL = env("REDIS_URL", "", read_redis_url, "a Redis URL")
EMBEDDED = not REDIS_URL
LEDGER = read_ledger(DATA_DIR, EMBEDDED)  # its signing key, and where checkpoints are kept outside the database
# The form with a host: plain memory:// makes kombu log a warning for each connection.
CELERY_BROKER_URL = connections.broker_url(REDIS_URL) or "memory://localhost//"
if connections.is_encrypted_blindly(REDIS_URL):
    CELERY_BROKER_USE_SSL = {"ssl_cert_reqs": CERT_REQUIRED}  # by default kombu would not check the certificate
CELERY_BROKER_TRANSPORT_OPTIONS = connections.broker_options(EMBEDDED)
# Installations that share a Redis need one queue each.
CELERY_TASK_DEFAULT_QUEUE = env("QUEUE_NAME", "countersign", str, "a name")
# Agents whose runs are left to workers of their own. A worker that is told no queues takes all of them.
_NO_QUEUES: dict[str, str] = {}
AGENT_QUEUES = env("AGENT_QUEUES", _NO_QUEUES, read_agent_queues, "agent=queue, with commas in between")
if AGENT_QUEUES:
    CELERY_TASK_QUEUES: dict[str, dict[str, str]] = {CELERY_TASK_DEFAULT_QUEUE: {}}
    CELERY_TASK_QUEUES |= {f"{CELERY_TASK_DEFAULT_QUEUE}.{name}": {} for name in AGENT_QUEUES.values()}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # never give up
CELERY_BROKER_CHANNEL_ERROR_RETRY = True  # otherwise a full Redis that refuses a worker would end it
# With 1 or more, the memory transport slows to a few messages a second.
CELERY_WORKER_PREFETCH_MULTIPLIER = 0 if EMBEDDED else 1
CELERY_TASK_ACKS_LATE = CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
# True makes a threads pool die when the broker connection drops.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_CONSUMER = "agentapp.consumer:Consumer"
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "agentapp.beat:NotedScheduler"
# The file that beat touches on every loop, about every 5 s, so that it can be monitored. None: no file.
BEAT_FILE = env("BEAT_FILE", None, Path, "a file")
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "agentapp.tasks.sweep", "schedule": float(SWEEP_SECONDS)},
    "notifications": {"task": "approvals.tasks.send_queued", "schedule": float(SWEEP_SECONDS)},
    "webhooks": {"task": "agentapp.tasks.send_webhooks", "schedule": 5.0},  # without an endpoint one query
    "figures": {"task": "agentapp.tasks.roll_up", "schedule": 60.0},
    "old webhooks": {"task": "agentapp.tasks.forget_webhooks", "schedule": 3600.0},
    "old sessions": {"task": "agentapp.tasks.forget_sessions", "schedule": 3600.0},
    "ledger": {"task": "agentapp.tasks.look_after_ledger", "schedule": 60.0},
    "imports": {"task": "agentapp.importing.pending.forget", "schedule": 600.0},
    "retention": {"task": "agentapp.retention.apply_due", "schedule": 3600.0},
}
_SOURCES = {"task": "agentapp.refreshing.refresh_sources", "schedule": float(SOURCE_REFRESH_SECONDS)}
CELERY_BEAT_SCHEDULE |= {"sources": _SOURCES} if SOURCE_REFRESH_SECONDS else {}
# Modules with tasks that import `agentapp.tasks`, which Celery finds by itself.
CELERY_IMPORTS = ["agentapp.refreshing", "agentapp.importing.pending", "agentapp.retention"]
CACHES = connections.caches(REDIS_URL, CELERY_TASK_DEFAULT_QUEUE)

# --- Signing in --------------------------------------------------------------------------------

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_AGE = 8 * 3600
AUTHENTICATION_BACKENDS = ["agentapp.rights.RightsBackend"]

# Administrators create accounts: there is no sign-up page, and none to change an address by mail.
ACCOUNT_ADAPTER = "agentapp.console.entrance.AccountAdapter"
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_EMAIL_NOTIFICATIONS = False
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_SESSION_COOKIE_AGE = SESSION_COOKIE_AGE
# Important actions ask for a second factor or passkey again unless it was given within this many seconds.
ACCOUNT_REAUTHENTICATION_TIMEOUT = 300
ACCOUNT_RATE_LIMITS = {
    "login_failed": "20/m/ip,5/5m/key",
    "reset_password": "20/10m/ip,3/10m/key",
    "passkey_options": "30/m/ip",  # each is stored in a session, even of a stranger
    "other_ways": "120/m/ip",
}
# A new password by mail. Off if mail is only written to the console, where anyone reading it could use the link.
PASSWORD_RESET = env_bool("PASSWORD_RESET", True) and bool(_MAIL_SERVER)
PASSWORD_RESET_TIMEOUT = 3600
ACCOUNT_PASSWORD_RESET_TOKEN_GENERATOR = "agentapp.password_reset.Links"  # noqa: S105

MFA_ADAPTER = "agentapp.console.entrance.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = WORKSPACE_NAME
MFA_TOTP_TOLERANCE = 1
MFA_WEBAUTHN_USER_VERIFICATION = "required"
# Administrators enter people's addresses; none comes from an unconfirmed sign-up.
MFA_ALLOW_UNVERIFIED_EMAIL = True

SOCIALACCOUNT_ADAPTER = "agentapp.console.entrance.SingleSignOnAdapter"
SOCIALACCOUNT_STORE_TOKENS = False
# Our own form-action would block a form that ends at the provider. The link itself grants nothing.
SOCIALACCOUNT_LOGIN_ON_GET = True
_NO_PROVIDERS: list[str] = []
OIDC_PROVIDERS = env("OIDC_PROVIDERS", _NO_PROVIDERS, read_provider_ids, "names such as corp, with commas")
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [oidc_provider(id) for id in OIDC_PROVIDERS]}}

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
CSRF_FAILURE_VIEW = "agentapp.console.problems.session_changed"
SECURE_COOKIES = env_bool("SECURE_COOKIES", not DEBUG)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_COOKIES
SECURE_SSL_REDIRECT = env_bool("SECURE_SSL_REDIRECT", False)
SECURE_HSTS_SECONDS = env_count("SECURE_HSTS_SECONDS", 0)
# W021: joining the browsers' preload list is a decision for a whole domain, made elsewhere and hard to undo.
SILENCED_SYSTEM_CHECKS = ["security.W021"]
SECURE_HSTS_INCLUDE_SUBDOMAINS = env_bool("SECURE_HSTS_INCLUDE_SUBDOMAINS", False)
BEHIND_PROXY = env_bool("BEHIND_PROXY", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
ALLAUTH_TRUSTED_PROXY_COUNT = 1 if BEHIND_PROXY else 0  # it adds the address by which failed sign-ins are counted

_DAYS = env_count("RETENTION_CONTENT_DAYS", 0), env_count("RETENTION_NOTIFICATIONS_DAYS", 0)  # 0: for ever
RETENTION_DAYS = {"content": _DAYS[0], "notifications": _DAYS[1], "evals": env_count("RETENTION_EVALS_DAYS", 0)}
# For the whole request body. Model arguments have their own limit of 256 KiB.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024

# --- Telemetry ---------------------------------------------------------------------------------

LOG_LEVEL = env("LOG_LEVEL", "INFO", read_choice("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "a log level")
LOGGING = logs.configuration(LOG_LEVEL, env("LOG_FORMAT", "line", read_choice("line", "json"), "line or json"))
# Where traces are sent, from the standard variables; the SDK reads the others itself. Empty: nowhere.
OTLP_TRACES_URL = otlp_traces_url()
OTLP_SECRET_HEADERS = otlp_headers()
# Whether spans say what was said: inputs, answers, arguments, results, names. Secrets are masked in any case.
OTEL_CONTENT = env_bool("OTEL_CONTENT", False)
# The token that Prometheus sends to read /metrics. Empty: there is no such page.
METRICS_TOKEN = env("METRICS_TOKEN", "", read_token, "at least 16 characters")
