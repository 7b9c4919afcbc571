"""Static files by whitenoise, under ASGI as under WSGI: as they lie in the packages, or collected in production."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticFiles(WhiteNoiseMiddleware):
    """Answers for static files. Whitenoise's own knows no async requests and streams, of which Django's ASGI warns."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """The file of this path, else what the site answers."""
        if self._is_async:
            return self._answer_async(request)
        return self._answer(request) or self.get_response(request)

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(self.static_prefix):
            found = await sync_to_async(self._answer, thread_sensitive=False)(request)
            if found is not None:
                return found
        answer: HttpResponseBase = await self.get_response(request)
        return answer

    def _answer(self, request: HttpRequest) -> HttpResponse | None:
        path = request.path_info
        if not path.startswith(self.static_prefix):
            return None
        found = self.find_file(path) if self.autorefresh else self.files.get(path)
        return None if found is None else self.serve(found, request)

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        """The whole file at once: those of a site are small."""
        told = static_file.get_response(request.method, request.META)
        body = b""
        if told.file is not None:
            with told.file as file:
                body = file.read()
        answer = HttpResponse(body, status=int(told.status))
        # Whitenoise says which type it is; what has not changed has none.
        del answer["Content-Type"]
        for name, value in told.headers:
            answer[name] = value
        return answer

    def add_files(self, root: str | Path, prefix: str | None = None) -> None:
        """A folder of files; one that nothing was collected into yet is no fault."""
        if Path(root).is_dir():
            super().add_files(str(root), prefix)


class Collected(CompressedManifestStaticFilesStorage):
    """Files by the digest of their content, once they are collected; before that by their names."""

    def stored_name(self, name: str) -> str:
        """The name that a page links to."""
        return str(super().stored_name(name)) if self.hashed_files else name
