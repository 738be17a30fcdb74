# The service. Where the package index has no CPU build of torch, name one that has:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=... -t usfda .
#   docker run -e USFDA_TOKEN=... -p 8000:8000 -v ./client.usfda:/model.usfda:ro -v usfda-data:/data usfda
# Without USFDA_TOKEN it refuses to start: it listens at every address of its container.
# Python 3.11 is what requirements.lock was made with.
FROM python:3.11-slim-bookworm AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
WORKDIR /build
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src src
RUN python -m venv /opt/usfda \
    && /opt/usfda/bin/pip install --no-cache-dir --constraint requirements.lock '.[serve,sign]'

FROM python:3.11-slim-bookworm
COPY --from=build /opt/usfda /opt/usfda
ENV PATH=/opt/usfda/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --no-create-home usfda && mkdir /data && chown usfda /data
# By its number, so that Kubernetes can tell that it is not root.
USER 10001
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=30s --timeout=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["usfda", "serve"]
CMD ["/model.usfda", "--host", "0.0.0.0", "--port", "8000", "--data", "/data"]
