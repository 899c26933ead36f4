# The service. Agents on the nodes that train have an image of their own: Dockerfile.agent.
FROM python:3.11-slim

WORKDIR /opt/meshwright
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY meshwright meshwright
COPY planner planner
COPY api api
COPY executor executor
COPY profiles profiles
COPY migrations migrations
RUN pip install --no-cache-dir --constraint constraints.txt '.[service,dask,telemetry,redis]' \
    && useradd --system --create-home --home-dir /var/lib/meshwright meshwright

USER meshwright
WORKDIR /var/lib/meshwright
# Inside a container every interface is the container's own; what the host publishes decides who
# can reach it. Everybody needs a key, and nothing starts before there is one.
ENV MESHWRIGHT_HOST=0.0.0.0 \
    MESHWRIGHT_LOG_FORMAT=json
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=6 CMD ["python", "-c", \
    "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ.get(\"MESHWRIGHT_PORT\", 8000)}/readyz')"]
CMD ["python", "-m", "api"]
