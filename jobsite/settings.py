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

DEBUG = env.bool("DEBUG", default=False)
PRODUCTION = bool(env.str("SECRET_KEY", default=""))
# Everybody can read this one: it signs nothing but what stays on this machine. Django's check knows the prefix.
_PUBLISHED_KEY = "django-insecure-development-only-" + "x" * 32
SECRET_KEY = env.str("SECRET_KEY", default="") or _PUBLISHED_KEY
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[] if PRODUCTION else ["localhost", "127.0.0.1", "[::1]"])
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
    *_installed("daphne", "channels"),
    "pgtrigger",
    "django.contrib.admin",
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
    # Before hosts are checked: probes come with whatever name.
    "jobs.health.probes",
    "django.middleware.security.SecurityMiddleware",
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
    "prepare_threshold": None if env.bool("DATABASE_POOLER", default=False) else 5,
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 15_000,
})
EMBEDDED_DATABASE = not DATABASE_URL

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
LOGIN_URL = "console:login"
LOGIN_REDIRECT_URL = "console:overview"
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
STATIC_URL = "static/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator",
                 "NumericPasswordValidator")
]

# Websockets hear by a connection of each process; with a layer of Redis (`channels_redis`) one process hears for all.
CHANNEL_LAYER_URL = env.str("CHANNEL_LAYER_URL", default="")
CHANNEL_LAYERS: dict[str, Any] = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
if CHANNEL_LAYER_URL:
    CHANNEL_LAYERS["default"] = {"BACKEND": "channels_redis.core.RedisChannelLayer",
                                 "CONFIG": {"hosts": [CHANNEL_LAYER_URL]}}

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["jobs.api.parsing.StrictJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["jobs.api.security.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["jobs.api.security.HasPermission"],
    "EXCEPTION_HANDLER": "jobs.api.errors.problem",
    "UNAUTHENTICATED_USER": None,
}
# The API's largest body, counted before anything is parsed.
DATA_UPLOAD_MAX_MEMORY_SIZE = _whole("MAX_BODY_BYTES", 1024 * 1024)

if PRODUCTION:
    SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=True)
    SECURE_HSTS_SECONDS = _whole("SECURE_HSTS_SECONDS", 31_536_000)
    SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("SECURE_HSTS_INCLUDE_SUBDOMAINS", default=True)
    SECURE_HSTS_PRELOAD = env.bool("SECURE_HSTS_PRELOAD", default=True)
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
    if env.bool("BEHIND_PROXY", default=False):
        SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")


def _retention_s() -> float | None:
    kept = env.str("JOBS_RETENTION_S", default="")
    return None if kept.strip().lower() == "none" else _seconds("JOBS_RETENTION_S", 30 * 86_400.0)


JOBS: dict[str, Any] = {
    "DEFINITIONS": env.list("JOBS_DEFINITIONS", default=["jobsite.definitions"]),
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
    "CHILD_MAX_JOBS": _whole("JOBS_CHILD_MAX_JOBS", 1_000),
    "CHILD_MAX_AGE_S": _seconds("JOBS_CHILD_MAX_AGE_S", 3_600.0),
    "CHILD_MAX_MEMORY_MB": _whole("JOBS_CHILD_MAX_MEMORY_MB", 512),
    "LIVE_PING_S": _seconds("JOBS_LIVE_PING_S", 20.0),
    "LIVE_CHECK_S": _seconds("JOBS_LIVE_CHECK_S", 30.0),
    "LIVE_PER_HOLDER": _whole("JOBS_LIVE_PER_HOLDER", 20),
    "LIVE_MOST": _whole("JOBS_LIVE_MOST", 2_000),
}

# Unless a level is asked for, the root logger has no handler: Python writes warnings to stderr by itself, and
# `runworker` writes every line as its events, with the attempt in which it was logged.
_LOG_LEVEL = env.str("LOG_LEVEL", default="")
LOGGING: dict[str, Any] = {"version": 1, "disable_existing_loggers": False}
if _LOG_LEVEL:
    LOGGING["handlers"] = {"console": {"class": "logging.StreamHandler"}}
    LOGGING["root"] = {"handlers": ["console"], "level": _LOG_LEVEL}
