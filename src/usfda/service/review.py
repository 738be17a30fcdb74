"""The page of ``usfda review``: questions with pictures on the loopback, for as long as they are answered."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any, cast

import uvicorn
from fastapi import FastAPI, Response
from PIL import Image as Pillow
from starlette.exceptions import HTTPException

from ..data.images import decode, read_file
from ..errors import InputError, UnreadableImage
from ..stages.review import Question, Survey
from ..text import review as text
from .app import KINDS, PAGE
from .guard import Door, Guard
from .limits import Limits
from .metrics import Metrics
from .questions import Given, Questions, Reviewed, questions_of, take_answers
from .run import Server, listen, protocol

HOST = "127.0.0.1"
SIDE = 900  # pixels of a picture, at most


class _Uncounted:
    """Instead of metrics."""

    def requested(self, *about: Any) -> None:
        """Nothing is counted."""


def answer_on_page(
    survey: Survey,
    asked: Sequence[Question],
    kept: MutableMapping[int, str],
    port: int,
    finish: Callable[[], list[str]],
) -> None:
    """Serve the page until all is answered; ``finish`` writes the model and says what it is. Ctrl-C interrupts."""
    if any(one.place is None for one in asked):
        raise InputError("a page shows images, not vectors; answer in the terminal or in a file")
    limits, done = Limits(), False
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    by_id = {str(one.row): one for one in asked}

    @app.get("/review")
    def questions() -> Questions:
        return questions_of(survey, asked, kept, lambda one: f"/picture/{one.row}")

    @app.post("/review")
    def answers(given: Given) -> Reviewed:
        nonlocal done
        try:
            take_answers(survey, asked, given, kept)
            result = finish() if given.finish else []
        except InputError as error:
            raise HTTPException(422, str(error)) from None
        if given.finish:
            done = server.should_exit = True
        return Reviewed(answered=len(kept), result=result)

    @app.get("/picture/{number}")
    def picture(number: str) -> Response:
        try:
            return Response(small_picture(by_id[number]), media_type="image/jpeg")
        except (KeyError, UnreadableImage):
            raise HTTPException(404, "no such image") from None

    for file in PAGE.iterdir():
        if file.name.startswith(("review.", "page.css", "api.js", "icon.")):
            path = "/" if file.name == "review.html" else f"/{file.name}"
            app.add_api_route(path, _sender(file, KINDS), include_in_schema=False)
    guarded = Guard(app, Door(None, HOST, ()), limits, "", cast(Metrics, _Uncounted()))
    with listen(HOST, port, None, limits) as bound:
        settings: dict[str, Any] = {
            "http": protocol(limits), "ws": "none", "log_config": None, "access_log": False, "server_header": False,
            "lifespan": "off",
        }  # fmt: skip
        address = f"http://{HOST}:{bound.getsockname()[1]}/"
        server = Server(uvicorn.Config(guarded, **settings), text.page_at(address))
        server.run([bound])
    if not done:
        raise KeyboardInterrupt


def small_picture(question: Question) -> bytes:
    """The image of a question as a JPEG."""
    assert question.place is not None
    image = decode(read_file(question.place), SIDE)
    image.thumbnail((SIDE, SIDE), Pillow.Resampling.BILINEAR)
    image.save(small := io.BytesIO(), "JPEG", quality=85)
    return small.getvalue()


def _sender(file: Traversable, kinds: Mapping[str, str]) -> Callable[[], Response]:
    content, kind = file.read_bytes(), kinds[file.name.rpartition(".")[2]]
    return lambda: Response(content, media_type=kind)
