"""The site as an ASGI application: pages and API by Django, event streams and websockets beside it."""

import importlib.util
import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
application: Any = get_asgi_application()

if importlib.util.find_spec("rest_framework"):
    from jobs.api.events import beside

    application = beside(application)
if importlib.util.find_spec("channels"):
    from channels.routing import ProtocolTypeRouter

    from jobs.consumers import websockets

    application = ProtocolTypeRouter({"http": application, "websocket": websockets})
