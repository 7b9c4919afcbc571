"""What every view shares: JSON whatever is accepted, nothing stored by caches, problems for everything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from django.db import transaction
from rest_framework.exceptions import NotFound
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.describing import Schema
from jobs.api.errors import problem
from jobs.api.parsing import StrictJSONParser, limit
from jobs.api.security import HasPermission, KeyAuthentication, MemberAuthentication
from jobs.services import rates
from jobs.services.keys import Permission


class AlwaysJSON(BaseContentNegotiation):
    """There is one form of answer, so nothing to negotiate."""

    def select_parser(self, request: Request, parsers: Any) -> BaseParser | None:
        """The only one."""
        return next(iter(parsers), None)

    def select_renderer(self, request: Request, renderers: Any,
                        format_suffix: str | None = None) -> tuple[BaseRenderer, str]:
        """The only one."""
        return renderers[0], renderers[0].media_type


class View(APIView):
    """One resource. `permissions` names what each of its methods needs; a method without one is refused."""

    permissions: ClassVar[Mapping[str, Permission | None]] = {}
    # Schemas that its answers name beside `forms.FORMS`, and what the name in its path is: for the document.
    forms: ClassVar[Mapping[str, Schema]] = {}
    named: ClassVar[str] = ""
    # What caches are told.
    cached: ClassVar[str] = "no-store"
    # Said here as well: the edge must not depend on what a project's REST_FRAMEWORK says.
    authentication_classes: Any = (KeyAuthentication, MemberAuthentication)
    permission_classes: Any = (HasPermission,)
    parser_classes = (StrictJSONParser,)
    content_negotiation_class = AlwaysJSON
    throttle_classes = ()
    versioning_class = None
    # The methods whose answers may take seconds: they get a thread of their own, and no other caller waits for one.
    waits: ClassVar[Collection[str]] = ()

    @classmethod
    def longest(cls) -> int:
        """The largest body in bytes."""
        return limit()

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """Outside of ATOMIC_REQUESTS: verbs of holders commit by themselves, and the others open what they need."""
        return transaction.non_atomic_requests(super().as_view(**initkwargs))

    def perform_authentication(self, request: Request) -> None:
        """Who it is, and whether so many requests may come from there; a long poll that is asked again counts once."""
        super().perform_authentication(request)
        plain: Any = request._request
        key: Any = request.auth
        if key is not None and not hasattr(plain, "jobs_rate"):
            plain.jobs_rate = rates.nothing_left(key)
            plain.jobs_rate = rates.spend(key)

    def get_exception_handler(self) -> Any:
        """Ours."""
        return problem

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Answers are read fresh, always."""
        done = super().finalize_response(request, response, *args, **kwargs)
        done["Cache-Control"] = self.cached if done.status_code < 400 else "no-store"
        rate = getattr(request._request, "jobs_rate", None)
        if rate is not None:
            done["RateLimit-Policy"], done["RateLimit"] = rate.policy, rate.state
        if not self.permissions:
            del done["Allow"]
        return done

    @property
    def allowed_methods(self) -> list[str]:
        """For the Allow header: what a permission is named for."""
        return sorted(self.permissions)


class Open(View):
    """A resource for everybody: no key is asked for, and none is looked at."""

    authentication_classes = ()
    permission_classes = ()


class Unknown(View):
    """Every path of the API that is none: a problem, for whoever asks."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before anybody is asked who they are: there is nothing to see."""
        raise NotFound("There is no such resource.")


def answer(body: Any, status: int = 200, **headers: str) -> Response:
    """A JSON answer; headers are spelled with underscores."""
    return Response(body, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})
