"""The site as an ASGI application: pages by Django, the API and tools in front, event streams and websockets beside."""

import importlib.util
import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
application: Any = get_asgi_application()

if importlib.util.find_spec("rest_framework"):
    from jobs.api.events import beside
    from jobs.api.straight import straight

    application = beside(straight(application))
    if importlib.util.find_spec("mcp"):
        from lanes.mcp.http import beside as with_tools

        application = with_tools(application)
if importlib.util.find_spec("channels"):
    from channels.routing import ProtocolTypeRouter

    from lanes.consumers import websockets

    application = ProtocolTypeRouter({"http": application, "websocket": websockets})
