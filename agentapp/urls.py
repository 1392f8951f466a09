from django.urls import path

from agentapp import api

urlpatterns = [path("api/v1/", api.urls)]
