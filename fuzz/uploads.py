"""Requests to the service, called in process: uploads and other bodies, odd headers, odd paths."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from usfda import Config, Model, adapt, procure
from usfda.backbones.zoo import get_backbone
from usfda.service.app import make_app
from usfda.service.limits import Limits
from usfda.service.service import Service

from . import images
from .harness import Change, Harness
from .mutations import odd_json

# By the first byte. A start of an adaptation is left out: it is a process of its own, and takes a second.
ROUTES = (
    "POST /predict", "POST /predict?keep=0", "POST /teach", "GET /kept/", "GET /", "POST /adapt/accept",
    "POST /model/rollback", "POST /adapt/discard", "GET /model", "GET /metrics",
)  # fmt: skip
LIMITS = Limits(body=2**14, command=2**12, files=8, memory_images=64, seconds=5, needed=10**9)


def request(route: int, headers: bytes, body: bytes, batch: int = 0) -> bytes:
    """An input: the route, bytes in a batch of the body, lines of headers and a blank one, the body."""
    return bytes([route, batch]) + headers + b"\n\n" + body


def form(content: bytes, name: bytes = b"a.png", field: bytes = b"files", more: bytes = b"") -> bytes:
    """A body with one file."""
    head = b'--b\r\nContent-Disposition: form-data; name="' + field + b'"; filename="' + name + b'"\r\n' + more
    return head + b"\r\n" + content + b"\r\n--b--\r\n"


class Fuzzed(Harness):
    """The service."""

    longest = 2**12
    memory = 512

    def __init__(self, folder: Path):
        super().__init__(folder)
        for name in ("python_multipart", "PIL"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        file = folder / "model.usfda"
        _model().save(file)
        self.service = Service(file, None, Config(threads=1, cache=None), LIMITS)
        self.app = make_app(self.service, None, "127.0.0.1")
        self.loop = asyncio.new_event_loop()

    def close(self) -> None:
        """End the service."""
        self.service.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def seeds(self) -> list[bytes]:
        """Uploads of each format, names of clusters, paths."""
        kind = b"content-type: multipart/form-data; boundary=b"
        pictures = images.Fuzzed(self.folder).seeds()
        several = form(pictures[5])[: -len(b"--\r\n")] + b"\r\n" + form(b"no image")[len(b"--b\r\n") :]
        return [
            *(request(n % 2, kind, form(picture), n % 3 * 50) for n, picture in enumerate(pictures[::3])),
            request(0, kind, several, 7),
            request(0, kind + b"; charset=latin-1", form(b"x", b"\xff")),
            request(0, kind, form(b"x", more=b"Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n")),
            request(0, kind, b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nvalue\r\n--b--\r\n'),
            request(1, b"content-type: multipart/form-data; boundary=\"b\"; charset*=utf-8''a", form(b"x")),
            request(2, b"content-type: application/json", json.dumps({"1": "giraffe", "2": "a"}).encode(), 1),
            request(2, b"content-type: application/json; charset=utf-16", b'{"1": "\\ud800", "a": 1}'),
            request(3, b"accept: */*", b"0" * 64),
            request(3, b"origin: http://127.0.0.1\nhost: 127.0.0.1:8000", b""),
            request(4, b"host: localhost\nauthorization: Bearer a\norigin: http://localhost", b"page.js"),
            request(4, b"host: [::1]:80", b"openapi.json?a=b&a"),
            *(request(n, b"origin: null", b"") for n in range(5, len(ROUTES))),
        ]

    def one_input(self, data: bytes) -> None:
        """No answer is a 5xx, every answer is whole, and nothing is raised."""
        head, _, body = data[2:].partition(b"\n\n")
        method, _, target = ROUTES[data[0] % len(ROUTES) if data else 0].partition(" ")
        if method == "GET":  # what follows the headers is the rest of the path
            target, body = target + body.decode("latin-1"), b""
        path, _, query = target.partition("?")
        headers = [
            (name.strip().lower(), value.strip())
            for name, sign, value in (line.partition(b":") for line in head.split(b"\n"))
            if sign and _fit(name, value)
        ]
        headers.append((b"content-length", b"%d" % len(body)))
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "root_path": "",
        }  # fmt: skip
        step = (data[1] if len(data) > 1 else 0) or max(1, len(body))
        batches = [body[i : i + step] for i in range(0, len(body), step)] or [b""]
        sent = self.loop.run_until_complete(self._answers(scope, batches))
        assert [message["type"] for message in sent[:1]] == ["http.response.start"], sent
        assert sent[0]["status"] < 500, (sent, scope, body)
        assert not sent[-1].get("more_body", False)
        answer = b"".join(message.get("body", b"") for message in sent)
        if dict(sent[0]["headers"]).get(b"content-type") == b"application/json":
            json.loads(answer)
            assert str(self.folder).encode() not in answer

    async def _answers(self, scope: dict[str, Any], batches: list[bytes]) -> list[Any]:
        left, sent = list(batches), []

        async def receive() -> dict[str, Any]:
            if not left:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent

    def mutate(self, data: bytes, most: int, random: Random, change: Change) -> bytes:
        """An odd picture in a sound form, odd names of clusters, odd headers."""
        head, blank, body = data[2:].partition(b"\n\n")
        what = random.random()
        if what < 0.1 or not blank:
            return change(data, most)
        if what < 0.3:
            return data[:2] + change(head, max(1, most - len(body) - 4)) + blank + body
        if what < 0.5 and data[0] % len(ROUTES) == ROUTES.index("POST /teach"):
            with suppress(ValueError, RecursionError):
                return data[:2] + head + blank + json.dumps(odd_json(json.loads(body), random)).encode()
        first, line, rest = body.partition(b"\r\n\r\n")
        content, end, after = rest.rpartition(b"\r\n--")
        room = max(1, most - len(data) + len(content))
        if what < 0.7 and end:
            return data[:2] + head + blank + first + line + change(content, room) + end + after
        if what < 0.85 and end:
            return data[:2] + head + blank + change(first, max(1, most - len(rest))) + line + rest
        return data[:2] + head + blank + change(body, room)


def _fit(name: bytes, value: bytes) -> bool:
    """Whether the server lets a header through to the application: as h11 does."""
    token = name.strip().isascii() and name.strip().replace(b"-", b"").isalnum()
    plain = not any(byte < 32 or byte == 127 for byte in value)
    return token and plain and name.strip().lower() not in (b"content-length", b"transfer-encoding")


def _model() -> Model:
    """One that was adapted, so that it has clusters to name."""
    backbone, rng = get_backbone("pixels"), np.random.default_rng(0)
    centres = rng.random((4, backbone.dim))
    X = np.repeat(centres, 12, 0) + 0.05 * rng.normal(size=(48, backbone.dim))
    model = procure(X[:24].astype(np.float32), np.repeat(["a", "b"], 12), method="mixture")
    adapted = adapt(model, X.astype(np.float32))
    return Model(adapted.source_classes, adapted.vendor, adapted.head, backbone, adapted.card)
