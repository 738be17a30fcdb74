"""Around every request: who may ask, how much may be sent and how slowly, and the headers of answers for browsers."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import secrets
import time
import traceback
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .limits import Limits, MiB
from .metrics import Metrics

log = logging.getLogger("usfda")

SAFE = ("GET", "HEAD", "OPTIONS")
# A host name or an address, with or without a port, and nothing else.
HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9.-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::[0-9]{1,5})?")
FAILED = "the service failed; its log has the reason"
LINGER = 2.0  # seconds for which the rest of a refused body is taken in, so that the client reads the answer
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


@dataclass(frozen=True)
class Door:
    """Who is let in.

    Parameters
    ----------
    token : str or None
        What a request must bring.
    host : str
        The address that the service listens at. Without a token only requests to it, or to another name of the
        loopback, are answered: a page elsewhere can make a browser send one to a name of its own.
    open : collection of str
        Paths that need no token.
    """

    token: str | None
    host: str
    open: Collection[str]

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raise ``HTTPException`` for a request that is not to be answered."""
        host = headers.get("host", "")
        if self.token is None and host and not self._is_here(host):
            raise HTTPException(403, "without a token this service answers to names of this machine only")
        origin = headers.get("origin")
        foreign = origin is not None and _place(origin) != host.lower()
        fetched = {site.strip().lower() for site in headers.getlist("sec-fetch-site")}
        if method not in SAFE and (foreign or not fetched <= {"same-origin", "none"}):
            raise HTTPException(403, "a page of another place may not do this")
        if self.token is not None and path not in self.open:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            right = secrets.compare_digest(given.strip().encode(), self.token.encode())
            brought = scheme.lower() == "bearer" and given
            if not (brought and right):
                wanted = "this token is wrong; send the right one" if brought else "send the token"
                raise HTTPException(401, f"{wanted}: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})

    def _is_here(self, host: str) -> bool:
        found = HOST.fullmatch(host)
        name = "" if found is None else (found["name"] or found["address"]).lower()
        try:
            return name in ("localhost", self.host.lower()) or ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


class Held:
    """Bytes of all uploads that are read or worked on."""

    def __init__(self, most: int):
        self.most, self.bytes = most, 0


class Body:
    """The body of a request, counted as it arrives."""

    def __init__(self, receive: Receive, headers: Headers, most: int, held: Held, seconds: float):
        self._receive, self._most, self._held = receive, most, held
        self._deadline = time.monotonic() + seconds
        self._taken, self._claimed = 0, int(headers.get("content-length", "0"))
        self.complete = self._claimed == 0 and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        """The next piece; ``HTTPException`` where it is too much, or too late."""
        if max(self._taken, self._claimed) > self._most:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the request took too long to arrive") from None
        size = len(message.get("body", b""))
        self._taken += size
        self._held.bytes += size
        self.complete = not message.get("more_body", False)
        if self._taken > self._most:
            raise self._too_large()
        if self._held.bytes > self._held.most:
            raise HTTPException(429, "too much is being uploaded; try again", {"Retry-After": "1"})
        return message

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"the body may have {self._most / MiB:g} MiB; send fewer files at a time")

    def release(self) -> None:
        """Nothing of it is held any more."""
        self._held.bytes -= self._taken
        self._taken = 0

    async def discard(self) -> None:
        """Take in the rest, within bounds: a client that is still sending would not see the answer."""
        self.release()
        left = self._most
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while not self.complete and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self.complete = not message.get("more_body", False)


class Guard:
    """The outermost layer of the application.

    Parameters
    ----------
    app : ASGI application
        What is guarded.
    door : Door
        Who is let in.
    limits : Limits
        What may be sent.
    uploads : str
        The path that takes uploads.
    metrics : Metrics
        Where requests are counted.
    """

    def __init__(self, app: ASGIApp, door: Door, limits: Limits, uploads: str, metrics: Metrics):
        self.app, self.door, self.limits, self.uploads, self.metrics = app, door, limits, uploads, metrics
        self._held = Held(limits.held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, headers = time.perf_counter(), Headers(scope=scope)
        most = self.limits.body if scope["path"] == self.uploads else self.limits.command
        body = Body(receive, headers, most, self._held, self.limits.seconds)
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                closing = [] if body.complete else [(b"connection", b"close")]
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS, *closing]}
            with suppress(h11.LocalProtocolError):  # the server has answered already: what came was no HTTP
                last = message["type"] == "http.response.body" and not message.get("more_body", False)
                if last and not body.complete:
                    await send({**message, "more_body": True})
                    await body.discard()
                    message = {"type": "http.response.body"}
                await send(message)

        try:
            self.door.check(scope["method"], scope["path"], headers)
            await self.app(scope, body.receive, answer)
        except HTTPException as refused:
            await _say(answer, refused.status_code, refused.detail, refused.headers or {})
        except Exception as error:
            log.error("%s %s: %s: %s", scope["method"], _route(scope), type(error).__name__, error)
            log.debug("%s", "".join(traceback.format_exception(error)))
            if not status:
                await _say(answer, 500, FAILED, {})
        finally:
            body.release()
            method = scope["method"] if scope["method"] in (*SAFE, "POST") else "other"
            self.metrics.requested(_route(scope), method, status, time.perf_counter() - started)


def _place(origin: str) -> str | None:
    """Host and port of an origin; None if it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _route(scope: Scope) -> str:
    """The path as the application names it: not what a client may make up."""
    return getattr(scope.get("route"), "path", "other")


async def _say(send: Send, status: int, detail: str, headers: Mapping[str, str]) -> None:
    body = json.dumps({"detail": detail}).encode()
    given = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
