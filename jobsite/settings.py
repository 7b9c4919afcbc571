"""The settings of the site, and the only reader of the environment (django-environ).

Without `DATABASE_URL` the address of the embedded PostgreSQL is used; importing this starts nothing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
# Installed as a package, the site belongs to the folder that it is started in.
PROJECT_DIR = BASE_DIR if (BASE_DIR / "manage.py").exists() else Path.cwd()
env = environ.FileAwareEnv()

_YES, _NO = {"1", "on", "yes", "true"}, {"", "0", "off", "no", "false"}


def _yes(name: str, default: bool) -> bool:
    said = env.str(name, default="").strip().lower()
    if said not in _YES | _NO:
        raise ImproperlyConfigured(f"{name} is {said!r}, and must be on or off.")
    return said in _YES if said else default


DEBUG = _yes("DEBUG", False)
PRODUCTION = bool(env.str("SECRET_KEY", default=""))
# Everybody can read this one: it signs nothing but what stays on this machine. Django's check knows the prefix.
_PUBLISHED_KEY = "django-insecure-development-only-" + "x" * 32
SECRET_KEY = env.str("SECRET_KEY", default="") or _PUBLISHED_KEY
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[] if PRODUCTION else ["localhost", "127.0.0.1", "[::1]"])
if PRODUCTION and not ALLOWED_HOSTS:
    raise ImproperlyConfigured("SECRET_KEY is set and ALLOWED_HOSTS is not: name the hosts that the site answers for, "
                               "as jobs.example.org,www.jobs.example.org.")
if PRODUCTION and DEBUG:
    raise ImproperlyConfigured("DEBUG shows everybody the insides of the site, and SECRET_KEY says that it is not on "
                               "this machine alone. Set one of the two.")
_LOCAL = {"localhost", "127.0.0.1", "[::1]", "testserver"}
if SECRET_KEY == _PUBLISHED_KEY:
    for _host in ALLOWED_HOSTS:
        if _host not in _LOCAL and not _host.endswith(".localhost"):
            raise ImproperlyConfigured(f"ALLOWED_HOSTS names {_host!r}: set SECRET_KEY to a secret of your own.")


def _whole(name: str, default: int) -> int:
    try:
        return int(env.int(name, default=default))
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {env.str(name)!r}, and must be a whole number.") from None


def _seconds(name: str, default: float) -> float:
    try:
        return float(env.float(name, default=default))
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {env.str(name)!r}, and must be a number of seconds.") from None


def _installed(*names: str) -> list[str]:
    return [name for name in names if importlib.util.find_spec(name.partition(".")[0]) is not None]


INSTALLED_APPS = [
    # Before channels, which ships a `runworker` of its own.
    "jobs.apps.JobsConfig",
    "lanes.apps.LanesConfig",
    *("jobsite.apps.DaphneConfig" for _ in _installed("daphne")),
    *_installed("channels"),
    "pgtrigger",
    # From Django 6.1 on required by the check of a model with an array.
    "django.contrib.postgres",
    "jobsite.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "jobsite.apps.JobsiteConfig",
    *_installed("rest_framework"),
    *_installed("django_htmx"),
]

MIDDLEWARE = [
    # The first, so that every answer and every line of the log has the request's id.
    "jobs.requests.identified",
    # Before hosts are checked: probes come with whatever name.
    "jobs.health.probes",
    # Around all that may refuse: refusals are pages too.
    "jobsite.headers.protected",
    "csp.middleware.CSPMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "jobsite.static.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "jobsite.urls"
ASGI_APPLICATION = "jobsite.asgi.application"
WSGI_APPLICATION = "jobsite.wsgi.application"

TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "DIRS": [BASE_DIR / "templates"],
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]

DATABASE_URL = env.str("DATABASE_URL", default="")


def _database() -> dict[str, Any]:
    if DATABASE_URL:
        return dict(env.db("DATABASE_URL"))
    from jobsite.postgres import address

    return address(PROJECT_DIR).django_database()


# The pool opens nothing while idle; runworker needs its thread slots + 4 and refuses to start otherwise.
# A server that is back after a restart is found within two seconds, and the connections that it broke are not handed
# out: one round trip a checkout.
POOL = {"min_size": 0, "max_size": _whole("DATABASE_POOL_MAX", 20), "timeout": 10, "reconnect_timeout": 2}
DATABASES = {"default": {**_database(), "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True}}
DATABASES["default"].setdefault("OPTIONS", {}).update({
    "pool": POOL, "connect_timeout": 5,
    # Behind a transaction pooler nothing may be prepared: DATABASE_POOLER=on.
    "prepare_threshold": None if _yes("DATABASE_POOLER", False) else 5,
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 15_000,
})
EMBEDDED_DATABASE = not DATABASE_URL

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
CSRF_FAILURE_VIEW = "jobsite.errors.csrf_failure"
LOGIN_URL = "console:login"
LOGIN_REDIRECT_URL = "console:overview"
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
FORMAT_MODULE_PATH = ["jobsite.formats"]
STATIC_URL = "static/"
STATIC_ROOT = PROJECT_DIR / "staticfiles"
# Files are served as they lie in the packages, unless this is production and they have been collected.
_COLLECTED = PRODUCTION and (STATIC_ROOT / "staticfiles.json").is_file()
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "jobsite.static.Collected" if PRODUCTION else
                    "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = not _COLLECTED
WHITENOISE_AUTOREFRESH = not PRODUCTION
WHITENOISE_MAX_AGE = 60 if PRODUCTION else 0
WHITENOISE_ALLOW_ALL_ORIGINS = False
AUTHENTICATION_BACKENDS = ["jobsite.logins.Throttled"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator",
                 "NumericPasswordValidator")
]

# Each process its own: it counts failed logins, and nothing that must not be lost.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10_000}}}
# Websockets hear by a connection of each process; with a layer of Redis (`channels_redis`) one process hears for all.
CHANNEL_LAYER_URL = env.str("CHANNEL_LAYER_URL", default="")
CHANNEL_LAYERS: dict[str, Any] = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
if CHANNEL_LAYER_URL:
    CHANNEL_LAYERS["default"] = {"BACKEND": "channels_redis.core.RedisChannelLayer",
                                 "CONFIG": {"hosts": [CHANNEL_LAYER_URL]}}

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["jobs.api.parsing.StrictJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["jobs.api.security.KeyAuthentication", "jobs.api.security.MemberAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["jobs.api.security.HasPermission"],
    "EXCEPTION_HANDLER": "jobs.api.errors.problem",
    "UNAUTHENTICATED_USER": None,
}
# The API's largest body, counted before anything is parsed.
DATA_UPLOAD_MAX_MEMORY_SIZE = _whole("MAX_BODY_BYTES", 1024 * 1024)
# Our own server's: until when a request must be complete, how long a connection may idle, how many there may be.
REQUEST_TIMEOUT_S = _seconds("REQUEST_TIMEOUT_S", 15.0)
IDLE_TIMEOUT_S = _seconds("IDLE_TIMEOUT_S", 75.0)
MOST_CONNECTIONS = _whole("MOST_CONNECTIONS", 4_000)
MOST_CONNECTIONS_PER_ADDRESS = _whole("MOST_CONNECTIONS_PER_ADDRESS", 500)
if REQUEST_TIMEOUT_S <= 0 or IDLE_TIMEOUT_S <= 0 or min(MOST_CONNECTIONS, MOST_CONNECTIONS_PER_ADDRESS) < 0:
    raise ImproperlyConfigured("REQUEST_TIMEOUT_S and IDLE_TIMEOUT_S must be above 0, MOST_CONNECTIONS and "
                               "MOST_CONNECTIONS_PER_ADDRESS 0 (no limit) or more.")

# One policy for every answer. Nothing inline, nothing from elsewhere; images may be written into a sheet.
CONTENT_SECURITY_POLICY = {"DIRECTIVES": {
    "default-src": ["'self'"], "img-src": ["'self'", "data:"], "object-src": ["'none'"], "base-uri": ["'none'"],
    "form-action": ["'self'"], "frame-ancestors": ["'none'"],
}}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = _whole("SESSION_AGE_S", 14 * 86_400)
# Where `manage.py up` and `manage.py serve` listen, unless they are told otherwise.
PORT = _whole("PORT", 8000)
# The last proxy says by X-Forwarded-Proto and X-Forwarded-For how and from where it was called, whatever callers send.
BEHIND_PROXY = _yes("BEHIND_PROXY", False)

if PRODUCTION:
    SECURE_SSL_REDIRECT = _yes("SECURE_SSL_REDIRECT", True)
    SECURE_HSTS_SECONDS = _whole("SECURE_HSTS_SECONDS", 31_536_000)
    SECURE_HSTS_INCLUDE_SUBDOMAINS = _yes("SECURE_HSTS_INCLUDE_SUBDOMAINS", True)
    SECURE_HSTS_PRELOAD = _yes("SECURE_HSTS_PRELOAD", True)
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
    if BEHIND_PROXY:
        SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")


def _retention_s() -> float | None:
    kept = env.str("JOBS_RETENTION_S", default="")
    return None if kept.strip().lower() == "none" else _seconds("JOBS_RETENTION_S", 30 * 86_400.0)


def _not_off(name: str) -> bool:
    # Only this very word: a typo must not stop what runs (B43).
    return bool(env.str(name, default="on") != "off")


def _credential(name: str, default: str) -> str:
    whose = str(env.str(name, default=default))
    if whose not in ("none", "owner"):
        raise ImproperlyConfigured(f"{name} is {whose!r}, and must be none or owner.")
    return whose


# What `jobsite.definitions` is told; its README names the flags of the products that these stand for.
FACTORY: dict[str, Any] = {
    "LEASE_S": _seconds("FACTORY_LEASE_S", 300.0),
    "CONTROL_LEASE_S": _seconds("FACTORY_CONTROL_LEASE_S", 900.0),
    "CODEX_LEASE_S": _seconds("FACTORY_CODEX_LEASE_S", 900.0),
    "CONTROL_TIMEOUT_S": _seconds("FACTORY_CONTROL_TIMEOUT_S", 3_600.0),
    "WATCHDOG": _yes("FACTORY_WATCHDOG", True),
    "WATCHDOG_TIMEOUT_S": _seconds("FACTORY_WATCHDOG_TIMEOUT_S", 60.0),
}
# The watchdog of lanes: at how many it looks in a round, and how long that may take (A49).
LANES: dict[str, Any] = {
    "WATCHDOG_SCAN_LIMIT": _whole("LANES_WATCHDOG_SCAN_LIMIT", 200),
    "WATCHDOG_TIMEOUT_S": _seconds("LANES_WATCHDOG_TIMEOUT_S", 60.0),
}
RESEARCH: dict[str, Any] = {
    "AGENT": _not_off("AGENT"), "BACKGROUND_JOBS": _not_off("BACKGROUND_JOBS"),
    "WEB_RESEARCH": _not_off("WEB_RESEARCH"), "CREDENTIAL": _credential("RESEARCH_CREDENTIAL", "owner"),
    "SUMMARY_CREDENTIAL": _credential("SUMMARY_CREDENTIAL", "none"),
}


DEFINITIONS = env.list("JOBS_DEFINITIONS", default=["jobsite.definitions"])


def _timers() -> dict[str, Any]:
    """The watchdogs, each one round at a time. That of the factory is run by a runner: where there is none, it only
    waits, so it begins when its cron is said (A49, E9).
    """
    lanes = env.str("LANES_WATCHDOG_CRON", default="* * * * *") if _yes("LANES_WATCHDOG", True) else ""
    factory = env.str("FACTORY_WATCHDOG_CRON", default="") if FACTORY["WATCHDOG"] else ""
    said = {"lane-watchdog": {"type": "lane-watchdog", "cron": lanes},
            "factory-watchdog": {"type": "factory.objective.watchdog", "cron": factory,
                                 "options": {"agent": "factory-control"}}}
    known = "jobsite.definitions" in DEFINITIONS
    return {name: {**one, "overlap": "skip"} for name, one in said.items() if one["cron"] and known}


def _callback() -> dict[str, Any] | None:
    """Who hears of jobs without a callback of their own (A37)."""
    url = env.str("CALLBACK_URL", default="")
    if not url:
        return None
    said = {"url": url, "token": env.str("CALLBACK_TOKEN", default="") or None,
            "events": env.list("CALLBACK_EVENTS", default=[]) or None}
    return {name: value for name, value in said.items() if value is not None}


JOBS: dict[str, Any] = {
    "DEFINITIONS": DEFINITIONS,
    "SLOTS": _whole("JOBS_SLOTS", 2),
    "POLL_S": _seconds("JOBS_POLL_S", 1.0),
    "DRAIN_GRACE_S": _seconds("JOBS_DRAIN_GRACE_S", 10.0),
    "LEASE_S": _seconds("JOBS_LEASE_S", 30.0),
    "RECOVERY_GRACE_S": _seconds("JOBS_RECOVERY_GRACE_S", 5.0),
    "RETENTION_S": _retention_s(),
    "LISTEN_DSN": env.str("JOBS_LISTEN_DSN", default=None),
    # For tests of crashes alone: where this process shall die.
    "FAILPOINTS": env.str("JOBS_FAILPOINTS", default=""),
    "MIDDLEWARE": env.list("JOBS_MIDDLEWARE", default=[]),
    "PUBLISH_S": _seconds("JOBS_PUBLISH_S", 10.0),
    "CREDENTIAL_RESOLVER": env.str("JOBS_CREDENTIAL_RESOLVER", default="") or None,
    "OWNER_CONCURRENCY": _whole("JOBS_OWNER_CONCURRENCY", 1),
    "CHILD_MAX_JOBS": _whole("JOBS_CHILD_MAX_JOBS", 1_000),
    "CHILD_MAX_AGE_S": _seconds("JOBS_CHILD_MAX_AGE_S", 3_600.0),
    "CHILD_MAX_MEMORY_MB": _whole("JOBS_CHILD_MAX_MEMORY_MB", 512),
    "AGENTS": ["factory", "factory-control", "factory-monitor", "codex"],
    # Where a rule on agents is silent the first rule on types holds, and all else of the family is chat (A23).
    "ROUTING": [
        {"agent": "codex", "type_prefix": "factory.", "worker_group": "receipt-codex"},
        {"agent": "factory-control", "type_prefix": "factory.", "worker_group": "receipt-control"},
        {"type_prefix": "factory.integration.", "worker_group": "receipt-codex"},
        {"type_prefix": "factory.", "worker_group": "receipt-chat"},
    ],
    "ROUTING_ACKNOWLEDGED": ["factory.dispatch", "factory.objective.audit", "factory.objective.control",
                             "factory.objective.watchdog", "factory.task.run"],
    "METRICS_TOKEN": env.str("METRICS_TOKEN", default="") or None,
    "LIVE_PING_S": _seconds("JOBS_LIVE_PING_S", 20.0),
    "LIVE_CHECK_S": _seconds("JOBS_LIVE_CHECK_S", 30.0),
    "LIVE_PER_HOLDER": _whole("JOBS_LIVE_PER_HOLDER", 20),
    "LIVE_MOST": _whole("JOBS_LIVE_MOST", 2_000),
    "TIMERS": _timers(),
    "WAITS_PER_KEY": _whole("JOBS_WAITS_PER_KEY", 100),
    "ASSIGNMENTS_PER_KEY": _whole("JOBS_ASSIGNMENTS_PER_KEY", 1_000),
    "BLOCKS_DELETION": env.list("JOBS_BLOCKS_DELETION", default=[]),
    "KEY_REQUESTS_PER_S": env.int("JOBS_KEY_REQUESTS_PER_S", default=None),
    "BATCH_MAX_BYTES": _whole("JOBS_BATCH_MAX_BYTES", 8 * 1024 * 1024),
    # Around the API under ASGI, in place of MIDDLEWARE: a key has no session, no form and no language.
    "API_MIDDLEWARE": ["jobs.requests.identified", "jobsite.headers.protected", "csp.middleware.CSPMiddleware",
                       "django.middleware.security.SecurityMiddleware"],
    "CANCELED_WITH_ONE_L": _yes("JOBS_CANCELED_WITH_ONE_L", False),
    "CALLBACKS": _yes("JOBS_CALLBACKS", True),
    "CALLBACK": _callback(),
    "CALLBACK_ALLOW": env.list("CALLBACK_ALLOW", default=[]),
    "CALLBACK_HTTP": _yes("CALLBACK_HTTP", False),
}

# Who `manage.py mcp` is: a key of the API.
MCP_KEY = env.str("JOBSITE_KEY", default="")

LOG_LEVEL = env.str("LOG_LEVEL", default="").upper()
if LOG_LEVEL and LOG_LEVEL not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
    raise ImproperlyConfigured(f"LOG_LEVEL is {LOG_LEVEL!r}, and must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL.")
LOG_FORMAT = env.str("LOG_FORMAT", default="auto").lower()
if LOG_FORMAT not in ("auto", "json", "text"):
    raise ImproperlyConfigured(f"LOG_FORMAT is {LOG_FORMAT!r}, and must be json, text or auto.")
# Unless a level is asked for, `runworker` writes its records among its events.
LOGGING: dict[str, Any] = {
    "version": 1, "disable_existing_loggers": False,
    "filters": {"request": {"()": "jobs.requests.RequestFilter"}},
    "formatters": {"line": {"()": "jobs.logs.Lines", "form": LOG_FORMAT}},
    "handlers": {"stderr": {"()": "jobs.logs.Stderr", "gives_way": not LOG_LEVEL, "formatter": "line",
                            "filters": ["request"]}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL or "INFO"},
    "loggers": {
        # Django's own handlers would say everything twice; and servers' own lines of requests have the query.
        "django": {"handlers": [], "level": "NOTSET"},
        # Below that it shows whole contexts, requests with their queries among them.
        "django.template": {"level": "INFO"},
        # What was refused is in the request's own line.
        "django.request": {"level": "ERROR"},
        # A stranger's scan is no trouble of ours; its line says 400.
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        "django.server": {"handlers": [], "level": "ERROR", "propagate": True},
        "django.channels.server": {"level": "WARNING"},
        "daphne": {"level": "WARNING"},
        # It tells of every message.
        "mcp": {"level": "WARNING"},
        "asyncio": {"level": "WARNING"},
    },
}
