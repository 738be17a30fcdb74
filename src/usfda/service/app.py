"""The routes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any

from fastapi import APIRouter, Body, FastAPI, Path, Query, Request, Response, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from pydantic import Field, StringConstraints
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from .. import __version__
from ..errors import InputError, UnreadableImage
from .answers import AdaptationAnswer, Error, Health, ModelAnswer, NoImage, Predictions, Serving, Taught
from .batching import Busy
from .guard import FAILED, Door, Guard
from .limits import Limits
from .questions import Given, Questions, Reviewed, questions_of
from .service import Conflict, Service

UPLOADS = "/predict"
FIELD = "files"
FIELDS = 16  # of a form beside its files; they are not looked at
PAGE = resources.files(__package__) / "page"
PATHS = {"index.html": "/", "docs.html": "/docs"}  # of files of the page; the others have their names
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
ASSETS = {PATHS.get(file.name, f"/{file.name}"): file for file in PAGE.iterdir()}
OPEN = {*ASSETS, "/healthz", "/openapi.json"}  # need no token
FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [FIELD],
                    "properties": {
                        FIELD: {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                            "description": "Images: JPEG, PNG, GIF, BMP, TIFF, WebP, PNM.",
                        }
                    },
                }
            }
        },
    }
}
TEXTS = {
    400: "The request cannot be understood.",
    401: "The token is missing or wrong.",
    403: "The request comes from another place.",
    404: "There is no such image.",
    408: "The body took too long to arrive.",
    409: "This cannot be done now.",
    413: "The body is too large.",
    415: "The body is of another kind.",
    422: "The values cannot be used.",
    429: "Too much is waiting.",
}


PROTECTED = (401, 403)
Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="Of an image's content.")]
Names = Annotated[
    dict[Annotated[str, StringConstraints(pattern="^[1-9][0-9]{0,4}$")], Annotated[str, Field(max_length=255)]],
    Body(
        min_length=1,
        description="The number of a cluster, and the name of its class.",
        examples=[{"3": "giraffe"}],
        json_schema_extra={"additionalProperties": False},
    ),
]


class _InMemory(MultiPartParser):
    spool_max_size = 0  # no part of an upload goes to disk


def make_app(service: Service, token: str | None, host: str) -> Guard:
    """The application of a service that listens at ``host``."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="usfda",
        version=__version__,
        description="A label, or *unknown*, for images, and adaptation to the images that arrive.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={Conflict: _conflict, Busy: _busy, RequestValidationError: _invalid, Exception: _failed},
    )

    @app.head("/healthz", include_in_schema=False)  # what some probes ask
    @app.get("/healthz", responses={403: _errors()[403]})
    async def health() -> Health:
        """That the service answers."""
        return Health(status="ok")

    secured = [Security(HTTPBearer(auto_error=False))] if token is not None else []
    app.include_router(_routes(service), dependencies=secured)
    for path, file in ASSETS.items():
        app.add_api_route(path, _asset(file), include_in_schema=False)
    return Guard(app, Door(token, host, OPEN), service.limits, UPLOADS, service.metrics)


def _asset(file: Traversable) -> Callable[[], Awaitable[Response]]:
    content, kind = file.read_bytes(), KINDS[file.name.rpartition(".")[2]]

    async def asset() -> Response:
        return Response(content, media_type=kind)

    return asset


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Error, "description": TEXTS[status]} for status in sorted((*PROTECTED, *statuses))}


def _routes(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        UPLOADS,
        response_model=Predictions,
        responses=_errors(400, 408, 413, 415, 429) | {422: {"model": NoImage, "description": "No file can be read."}},
        openapi_extra=FORM,
    )
    async def predict(
        request: Request,
        keep: Annotated[bool, Query(description="Keep the images, for an adaptation.")] = True,
    ) -> JSONResponse:
        """A label or *unknown* for every image, with its score and the three best classes."""
        files = await _files(request, service.limits)
        loop = asyncio.get_running_loop()  # whose threads cost less than those of Starlette
        uploads, known = await loop.run_in_executor(None, service.uploads, files)
        new = {upload.key: upload.content for upload in uploads if upload.key not in known}
        found = await asyncio.gather(
            *map(asyncio.wrap_future, service.batcher.submit(list(new.values()))), return_exceptions=True
        )
        vectors: dict[bytes, Any] = known | dict(zip(new, found, strict=True))
        for vector in found:
            if isinstance(vector, BaseException) and not isinstance(vector, UnreadableImage):
                raise vector
        of_each = [vectors[upload.key] for upload in uploads]
        model, records = await loop.run_in_executor(None, service.answer, uploads, of_each, keep)
        if all("error" in record for record in records):
            return JSONResponse({"detail": "none of the files can be read", "results": records}, 422)
        return JSONResponse({"model": model, "results": records})

    @routes.get("/model", responses=_errors())
    def model() -> ModelAnswer:
        """The model that serves: its card, its classes, its sha256, and what the adaptation found."""
        return ModelAnswer(**service.describe())

    @routes.get(
        "/kept/{sha256}",
        response_class=Response,
        responses=_errors(404, 422) | {200: {"content": {"image/jpeg": {}}, "description": "The picture."}},
    )
    def kept(sha256: Sha256) -> Response:
        """A small picture of an image that is kept."""
        try:
            return Response(service.picture(bytes.fromhex(sha256)), media_type="image/jpeg")
        except (KeyError, UnreadableImage):
            raise HTTPException(404, "no such image is kept") from None

    @routes.get("/adapt", responses=_errors())
    def adaptation() -> AdaptationAnswer:
        """How far the adaptation is; when it is ready, what it found, and the labels before and after."""
        return AdaptationAnswer(**service.status())

    @routes.post("/adapt", status_code=202, responses=_errors(409))
    def adapt() -> AdaptationAnswer:
        """Adapt to the images that are kept, in the background."""
        service.start()
        return AdaptationAnswer(**service.status())

    @routes.post("/adapt/accept", responses=_errors(409))
    def accept() -> Serving:
        """Let the adapted model serve."""
        return Serving(model=service.accept())

    @routes.post("/adapt/discard", responses=_errors(409))
    def discard() -> AdaptationAnswer:
        """Forget the adaptation; the present model goes on."""
        service.discard()
        return AdaptationAnswer(**service.status())

    @routes.post("/model/rollback", responses=_errors(409))
    def rollback(
        model: Annotated[
            str | None, Query(description="The sha256 of the model that is given up; 409 where another serves.")
        ] = None,
    ) -> Serving:
        """Let the model before the present one serve again; the present one is deleted."""
        return Serving(model=service.rollback(model))

    @routes.post("/teach", responses=_errors(400, 408, 409, 413, 422))
    def teach(
        names: Names,
        model: Annotated[
            str | None, Query(description="The sha256 of the model whose clusters are meant; 409 where another serves.")
        ] = None,
    ) -> Taught:
        """Give clusters of the unknown the names of classes, new ones or ones that the model has."""
        try:
            sha256, classes, warnings = service.teach({int(number): name for number, name in names.items()}, model)
        except InputError as error:
            raise HTTPException(422, str(error)) from None
        return Taught(model=sha256, classes=classes, warnings=warnings)

    @routes.get("/review", responses=_errors(409))
    def questions() -> Questions:
        """Questions about kept images whose answers set the rejection threshold and measure the model."""
        asked = service.review()
        return questions_of(asked.survey, asked.questions, asked.answers, lambda one: f"/kept/{one.name}")

    @routes.post("/review", responses=_errors(400, 408, 409, 413, 422))
    def answers(given: Given) -> Reviewed:
        """Keep answers; with ``finish`` the reviewed model serves, and ``result`` says what was measured."""
        try:
            return service.answered(given)
        except InputError as error:
            raise HTTPException(422, str(error)) from None

    @routes.get(
        "/metrics",
        response_class=Response,
        responses=_errors() | {200: {"content": {"text/plain": {}}, "description": "In Prometheus' format."}},
    )
    def metrics() -> PlainTextResponse:
        """For Prometheus: requests, images, share of unknowns, queue, model, adaptation."""
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return routes


async def _files(request: Request, limits: Limits) -> list[tuple[str, bytes]]:
    """Names and contents of an upload's files."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise HTTPException(415, f"send images as multipart/form-data, in the field {FIELD}")
    try:
        parser = _InMemory(request.headers, request.stream(), max_files=limits.files, max_fields=FIELDS)
        form = await parser.parse()
    except (MultiPartException, FormParserError, UnicodeError) as error:  # the charset is the client's choice
        raise HTTPException(400, getattr(error, "message", "Invalid multipart data.")) from None
    except ClientDisconnect:
        raise HTTPException(400, "the body ended before it was complete") from None
    sent = [part for name, part in form.multi_items() if name == FIELD and isinstance(part, UploadFile)]
    # Some charsets have halves of characters, which no answer can hold.
    files = [((part.filename or "").encode(errors="backslashreplace").decode(), part.file.read()) for part in sent]
    await form.close()
    if not files:
        raise HTTPException(422, f"no file: send images in the field {FIELD}")
    return files


async def _conflict(request: Request, error: Conflict) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409)


async def _busy(request: Request, error: Busy) -> JSONResponse:
    return JSONResponse({"detail": "too many images wait; try again"}, 429, {"Retry-After": "1"})


async def _failed(request: Request, error: Exception) -> JSONResponse:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    said = "the disk of the service is full; nothing has changed, make room and try again" if full else FAILED
    return JSONResponse({"detail": said}, 500)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    said = "; ".join(f"{' '.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()[:3])
    if said.startswith("body") and "json" not in request.headers.get("content-type", "").lower():
        said = "send JSON with the header Content-Type: application/json"
    return JSONResponse({"detail": said}, 422)
