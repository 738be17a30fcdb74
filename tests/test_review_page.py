"""The page of ``usfda review`` in a real browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import serving
from browser import Open, Visit
from serving import running

from usfda import Config, adapt, load, procure
from usfda.stages.review import Survey

CONFIG = Config(threads=1, cache=None)
PATIENCE = 120  # seconds after which something that should happen has not
SHARED = {"kind0", "kind1"}
WINDOWS: list[dict[str, Any]] = [
    {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    for width, scheme in ((1280, "light"), (390, "dark"))
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, photos: Path, new_photos: Path) -> Path:
    file = tmp_path_factory.mktemp("client") / "client.usfda"
    vendor = procure(photos, backbone="pixels", method="mixture", config=CONFIG)
    adapt(vendor, new_photos, config=CONFIG).save(file)
    return file


class Reviewing:
    """``usfda review --page`` as a program of its own."""

    def __init__(self, *args: str):
        command = [sys.executable, "-m", "usfda", "review", "--page", *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "999"})
        assert self.process.stderr is not None
        self.address = ""
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                self.address = found[0]
                break
        assert self.address

    def end(self) -> int:
        assert self.process.stderr is not None
        self.process.stderr.read()
        self.process.stderr.close()
        return self.process.wait(PATIENCE)


@pytest.fixture
def reviewing(client: Path, new_photos: Path, tmp_path: Path) -> Iterator[Reviewing]:
    out, facts = str(tmp_path / "out.usfda"), str(tmp_path / "out.json")
    started = Reviewing(str(client), str(new_photos), "-o", out, "--count", "6", "--json", facts)
    yield started
    if started.process.poll() is None:
        started.process.terminate()
        started.end()


def truth_of(seen: Visit) -> str:
    """The class of the image that is shown, by its folder."""
    return Path(seen.page.locator("#about").inner_text().partition(" · ")[0]).parent.name


def test_questions_are_answered_with_the_keyboard_and_the_pointer(
    visit: Open, reviewing: Reviewing, client: Path, new_photos: Path, tmp_path: Path
) -> None:
    seen = visit(reviewing.address)
    page = seen.page
    for number in range(6):
        page.locator("#place", has_text=f"{number} of 6").wait_for()
        page.locator("#picture[src^='blob:']").wait_for()
        assert not seen.scrolls_sideways()
        label, guess = truth_of(seen), page.locator("#question .tag").inner_text()
        if number == 0:
            assert seen.faults_of_access() == []
            page.keyboard.press("n")
            page.keyboard.type("giraffe")
            page.keyboard.press("Enter")  # is no class of the model
            page.locator("#wrong", has_text="giraffe").wait_for()
            page.locator("#name").fill("")
            page.keyboard.press("Escape")
        if number == 2:  # what was answered so far is there after a reload
            page.reload()
            page.locator("#place", has_text="2 of 6").wait_for()
            page.locator("#picture[src^='blob:']").wait_for()
        if label == guess and number % 2:
            page.locator("#yes").click()
        elif label == guess:
            page.keyboard.press("y")
        elif label in SHARED:
            page.keyboard.press(str(1 + load(client).classes_.index(label)))
            page.keyboard.press("Enter")
        elif number % 2:
            page.locator("#none").click()
        else:
            page.keyboard.press("0")
    page.locator("#finish").click()
    page.locator("#end-title", has_text="finished").wait_for()
    assert page.locator("#result li").count() >= 5
    assert reviewing.end() == 0
    found = load(tmp_path / "out.usfda").deployment["review"]
    assert json.loads((tmp_path / "out.json").read_text())["measured"] == found["measured"]
    asked = Survey.of(client, new_photos, CONFIG).questions(6)
    known = [Path(question.name).parent.name in SHARED for question in asked]
    right = [Path(question.name).parent.name == question.guess for question in asked]
    assert (found["asked"], found["answered"]) == (6, 6)
    assert found["answers"]["right"] == sum(right)
    assert found["answers"]["none"] == 6 - sum(known)
    # The refused answer is the one complaint of the browser.
    assert [error for error in seen.errors if "422" not in error] == []
    assert all(url.startswith((reviewing.address, "blob:")) for url in seen.requests)


@pytest.mark.parametrize("window", WINDOWS)
def test_the_page_fits_its_window_and_is_accessible(visit: Open, reviewing: Reviewing, window: dict[str, Any]) -> None:
    seen = visit(reviewing.address, **window)
    seen.page.locator("#picture[src^='blob:']").wait_for()
    assert not seen.scrolls_sideways()
    seen.page.locator("#no").click()
    assert not seen.scrolls_sideways()
    assert seen.faults_of_access() == []
    if folder := os.environ.get("USFDA_SCREENSHOTS"):
        seen.page.screenshot(path=f"{folder}/review-{window['viewport']['width']}.png")


def test_other_pages_and_names_are_refused(reviewing: Reviewing) -> None:
    with httpx.Client(base_url=reviewing.address, timeout=PATIENCE) as client:
        page = client.get("/")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert client.get("/review", headers={"Host": "example.org"}).status_code == 403
        body = {"answers": {}, "finish": True}
        assert client.post("/review", json=body, headers={"Origin": "http://example.org"}).status_code == 403
        assert client.post("/review", json=body).status_code == 422  # nothing is answered
        assert client.post("/review", json={"answers": {"123456": "y"}}).status_code == 422
        assert client.get("/picture/123456").status_code == 404
        assert client.get("/picture/..%2f..%2fetc").status_code == 404
    assert reviewing.process.poll() is None


def test_an_interrupted_page_keeps_its_answers(client: Path, new_photos: Path, tmp_path: Path) -> None:
    call = (str(client), str(new_photos), "-o", str(tmp_path / "out.usfda"), "--count", "4")
    first = Reviewing(*call)
    with httpx.Client(base_url=first.address, timeout=PATIENCE) as web:
        numbers = [one["id"] for one in web.get("/review").json()["questions"]]
        assert web.post("/review", json={"answers": {numbers[0]: "y"}}).json()["answered"] == 1
    first.process.send_signal(2)
    assert first.end() == 130
    second = Reviewing(*call)
    with httpx.Client(base_url=second.address, timeout=PATIENCE) as web:
        assert [one["answer"] for one in web.get("/review").json()["questions"]] == ["y", None, None, None]
        done = web.post("/review", json={"answers": dict.fromkeys(numbers[1:], "none"), "finish": True})
        assert done.status_code == 200
        assert done.json()["result"]
    assert second.end() == 0
    assert load(tmp_path / "out.usfda").deployment["review"]["answered"] == 4


def test_a_service_reviews_its_kept_images(client: Path, new_photos: Path) -> None:
    files = sorted(new_photos.rglob("*.png"))
    with running(client) as port, serving.client(port) as web:
        assert web.get("/review").status_code == 409  # nothing is kept yet
        web.send_images(files)
        before = web.get("/model").json()
        asked = web.get("/review").json()
        assert asked["classes"] == before["classes"]
        assert asked == web.get("/review").json()
        one = asked["questions"][0]
        assert web.get(one["picture"]).headers["content-type"] == "image/jpeg"
        assert web.post("/review", json={"answers": {one["id"]: "giraffe"}}).status_code == 422
        assert web.post("/review", json={"answers": {}, "finish": True}).status_code == 422
        kinds = {sha256(file.read_bytes()).hexdigest(): file.parent.name for file in files}
        answers = {
            q["id"]: kind if (kind := kinds[q["name"]]) in SHARED else "none" for q in asked["questions"]
        }  # fmt: skip
        assert web.post("/review", json={"answers": answers}).json() == {"answered": len(answers), "result": []}
        done = web.post("/review", json={"answers": {}, "finish": True}).json()
        assert len(done["result"]) >= 5
        after = web.get("/model").json()
        assert after["hash"] != before["hash"]
        assert after["card"]["deployment"]["review"]["answered"] == len(answers)
        assert after["earlier"] == before["earlier"] + 1
        web.post("/model/rollback")
        assert web.get("/model").json()["hash"] == before["hash"]
