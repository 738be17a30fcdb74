"""The service as a process: it listens, answers until it is stopped, and finishes the requests that it has."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import math
import re
import signal
import socket
import time
from asyncio import TimerHandle, Transport
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..config import Config
from ..errors import InputError
from .app import make_app
from .limits import Limits
from .service import Service

log = logging.getLogger("usfda")
PIECE = 256  # bytes of a body that cost as much time as the parsing of one more chunk


class Server(uvicorn.Server):
    """Says where it listens once it does; SIGTERM and Ctrl-C let it finish and return, a second Ctrl-C ends it."""

    def __init__(self, config: uvicorn.Config, text: str):
        super().__init__(config)
        self._text = text

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        asyncio.get_running_loop().set_exception_handler(Complaints())
        await super().startup(sockets)
        log.info("%s", self._text)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; unlike uvicorn's own, without raising the signal again afterwards."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class Complaints:
    """What asyncio has to say. Without file handles it would say so, with a trace, thousands of times a second."""

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """One line a minute for that, all else as usual."""
        if getattr(context.get("exception"), "errno", None) not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif time.monotonic() > self._last + 60:
            self._last = time.monotonic()
            log.warning("out of file handles: new connections wait; raise the limit (ulimit -n)")


def protocol(limits: Limits) -> type[H11Protocol]:
    """HTTP, with bounds on how many connect, and on how long a connection may keep a request from beginning."""

    class Bounded(H11Protocol):
        patience: TimerHandle | None = None
        pieces = 0.0

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            following = self.conn.next_event

            def next_event() -> Any:
                event = following()
                if isinstance(event, h11.Request):
                    self.pieces = 0.0
                elif isinstance(event, h11.Data):
                    self.pieces += 1 - len(event.data) / PIECE
                    if self.pieces > limits.pieces:
                        raise h11.RemoteProtocolError("too many small chunks")
                return event

            self.conn.next_event = next_event  # type: ignore[method-assign]
            if len(self.connections) > limits.connections:
                transport.abort()
            self.wait()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self.patience is not None:
                self.patience.cancel()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.wait()

        def wait(self) -> None:
            if self.patience is not None:
                self.patience.cancel()
            self.patience = self.loop.call_later(limits.idle, self.lose_patience)

        def lose_patience(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.abort()

    return Bounded


def listen(host: str, port: int, token: str | None, limits: Limits) -> socket.socket:
    """A socket that is bound; an error where nobody may listen there, or nobody can."""
    if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token):
        raise InputError("USFDA_TOKEN, or --token: at least one letter, digit or sign of ASCII, and no blanks")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InputError(f"--host {host}: no such address") from None
    if token is None and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise InputError(f"--host {host}: others can reach it; set USFDA_TOKEN to a token that requests must bring")
    try:
        bound = socket.create_server(address[:2], family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{host}:{port}: cannot listen there ({reason}); give another --port") from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # for a client that does not take in its answer
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * limits.idle))
    return bound


def make_server(bound: socket.socket, service: Service, host: str, token: str | None) -> Server:
    """What answers for a service, given a socket to run on."""
    limits = service.limits
    settings: dict[str, Any] = {
        "http": protocol(limits), "ws": "none", "log_config": None, "access_log": False, "server_header": False,
        "timeout_keep_alive": int(limits.idle), "lifespan": "on",
    }  # fmt: skip
    for name in ("uvicorn", "python_multipart", "PIL"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what clients do wrong is theirs to know
    place = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
    open_to = "" if token else ", without a token: every program of this machine may use it"
    models = service.models
    sha256 = models.current.entry.sha256
    instead = "" if sha256 == models.base else f", accepted or taught here, instead of {models.given}"
    text = f"serving model {sha256[:12]}…{instead} at {place}{open_to}; images are kept {service.place}"
    return Server(uvicorn.Config(make_app(service, token, host), **settings), text)


def serve(
    model: Path, host: str, port: int, token: str | None, data: Path | None, config: Config, signed_by: Path | None
) -> None:
    """Answer until SIGTERM or Ctrl-C."""
    limits = Limits()
    with listen(host, port, token, limits) as bound, threadpool_limits(1):  # the workers share the cores
        make_server(bound, Service(model, data, config, limits, signed_by), host, token).run([bound])
    log.info("stopped")
