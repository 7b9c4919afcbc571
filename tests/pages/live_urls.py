"""The site with pages of the live path's own tests: what the database holds, in the console's frame."""

from __future__ import annotations

from typing import Any

from django.contrib.staticfiles.views import serve
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.template import RequestContext, Template
from django.urls import path

from jobs.models import Job
from jobs.pages.access import Page
from jobsite import urls

handler400, handler403, handler404, handler500 = urls.handler400, urls.handler403, urls.handler404, urls.handler500
PAGE = """{% extends "jobs/base.html" %}{% block content %}
<p>Rendered <span id="at">{% now "U.u" %}</span></p>
<dl>{% for state, n in states %}<dt>{{ state }}</dt><dd id="{{ state }}">{{ n }}</dd>{% endfor %}</dl>
{% for job in these %}<p class="job" id="job-{{ job.pk }}">{{ job.state }} {{ job.number }}</p>{% endfor %}
<details id="more"><summary>More</summary><p id="inside">Inside</p></details>
<input id="typed" aria-label="typed"><a id="link" href="?x">A link</a><p id="words">Some words to select</p>
<div id="tall"></div>{% endblock %}{% block still %}<textarea id="kept"></textarea>{% endblock %}"""


class Watched(Page):
    """Counts by state, or one job."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        pk = kwargs.get("pk")
        self.live = f"/live/jobs/{pk}/" if pk else "/live/site/"
        told = self.get_context_data(states=Job.objects.values_list("state").annotate(n=Count("pk")).order_by("state"),
                                     these=Job.objects.filter(pk=pk) if pk else [])
        return HttpResponse(Template(PAGE).render(RequestContext(request, told)))


urlpatterns = [
    path("watched/", Watched.as_view()), path("watched/<uuid:pk>/", Watched.as_view()),
    path("static/<path:path>", serve, {"insecure": True}), *urls.urlpatterns,
]
