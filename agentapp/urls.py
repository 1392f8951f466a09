"""All URLs, except the live stream, which is a separate raw ASGI route: see `asgi` and `live`."""

from django.contrib import admin
from django.urls import include, path

from agentapp import api
from agentapp.console import measures, probes

urlpatterns = [
    path("", include("agentapp.console.urls")),
    path("api/v1/", api.urls),
    path("admin/", admin.site.urls),
    path("healthz/", probes.healthz, name="healthz"),
    path("metrics", measures.metrics, name="metrics"),
    path("readyz/", probes.readyz, name="readyz"),
]

handler400 = "agentapp.console.problems.bad_request"
handler403 = "agentapp.console.problems.forbidden"
handler404 = "agentapp.console.problems.not_found"
handler500 = "agentapp.console.problems.broken"
