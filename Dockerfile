FROM python:3.13-slim AS build
RUN pip install --no-cache-dir uv==0.13.8
WORKDIR /build
COPY pyproject.toml requirements.lock ./
# Only what production needs, at exactly the versions and hashes of the lock. What the lock does not name is refused.
RUN uv venv /venv && \
    uv pip install --no-cache --python /venv/bin/python --require-hashes --constraint requirements.lock -r pyproject.toml

FROM python:3.13-slim
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 DATA_DIR=/data
RUN useradd --uid 10001 --create-home countersign && mkdir /data && chown countersign /data
WORKDIR /app
COPY --from=build /venv /venv
COPY manage.py ./
COPY agentapp agentapp
COPY approvals approvals
COPY templates templates
COPY static static
RUN SECRET_KEY=only-for-collecting-files python manage.py collectstatic --noinput --verbosity 0
USER countersign
EXPOSE 8000
CMD ["uvicorn", "agentapp.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--no-access-log", \
     "--timeout-graceful-shutdown", "20"]
