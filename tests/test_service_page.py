from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Open, Visit
from serving import PATIENCE, client, running, write_grainy_photos

import usfda

DROP = """files => {
  const held = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = Uint8Array.from(atob(content), c => c.charCodeAt(0));
    held.items.add(new File([bytes], name, {type: "image/png"}));
  }
  const options = {dataTransfer: held, bubbles: true, cancelable: true};
  const zone = document.getElementById("drop");
  for (const name of ["dragenter", "dragover", "drop"]) zone.dispatchEvent(new DragEvent(name, options));
}"""
WINDOWS: list[dict[str, Any]] = [
    {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    for width in (1280, 390)
    for scheme in ("light", "dark")
]


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    file = tmp_path_factory.mktemp("vendor") / "vendor.usfda"
    usfda.procure(photos, backbone="pixels", method="mixture", config=usfda.Config(cache=None)).save(file)
    return file


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_grainy_photos(tmp_path_factory.mktemp("target") / "photos", [0, 1, 4, 5], 10)


@pytest.fixture
def port(vendor: Path) -> Iterator[int]:
    with running(vendor) as found:
        yield found


def opened(visit: Open, port: int, **options: Any) -> Visit:
    found = visit(f"http://127.0.0.1:{port}/", **options)
    found.page.set_default_timeout(1000 * PATIENCE)
    found.page.locator("#serving", has_text="Model").wait_for()
    return found


def summary(visit: Visit, text: str) -> None:
    visit.page.locator("#summary", has_text=text).wait_for()


def names(visit: Visit) -> list[str]:
    return visit.page.locator("#results .name").all_inner_texts()


def labels(visit: Visit) -> list[str]:
    return visit.page.locator("#results .tag").all_inner_texts()


def check_quiet(visit: Visit, port: int) -> None:
    """It complained of nothing, and asked nobody else."""
    assert visit.errors == []
    assert [url for url in visit.requests if not url.startswith((f"http://127.0.0.1:{port}/", "blob:"))] == []


def test_images_are_answered_however_they_come(visit: Open, port: int, target: list[Path], tmp_path: Path) -> None:
    seen = opened(visit, port)
    page = seen.page
    page.on("filechooser", lambda chooser: chooser.set_files(target[:3]))
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.id") != "choose-files":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    summary(seen, "3 images:")
    assert names(seen) == [file.name for file in target[:3]]
    page.evaluate(DROP, [[file.name, base64.b64encode(file.read_bytes()).decode()] for file in target[3:23]])
    summary(seen, "23 images:")
    assert names(seen)[:20] == [file.name for file in target[3:23]]
    folder = tmp_path / "folder" / "deep"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("no image")
    (folder / "torn.png").write_bytes(target[30].read_bytes()[:200])
    (folder / "whole.png").write_bytes(target[30].read_bytes())
    page.locator("#folder").set_input_files(tmp_path / "folder")
    summary(seen, "25 images:")
    assert "1 not read" in page.locator("#summary").inner_text()
    assert sorted(names(seen)[:2]) == ["folder/deep/torn.png", "folder/deep/whole.png"]
    with client(port) as web:
        records = web.send_images(target[:3]).json()["results"]
        assert web.get("/adapt").json()["kept"] == 24
    assert labels(seen)[-3:] == [record["label"] for record in records]
    card = page.locator("#results li").last
    best = [] if records[2]["label"] == "unknown" else records[2]["top"]
    assert card.locator("dt").all_inner_texts() == [name for name, _ in best]
    assert card.locator("dd:last-child").all_inner_texts() == [f"{round(100 * share)} %" for _, share in best]
    assert f"score {records[2]['score']:.2f}" in card.inner_text()
    page.locator("#keep").uncheck()
    page.locator("#files").set_input_files(target[35:36])
    summary(seen, "26 images:")
    with client(port) as web:
        assert web.get("/adapt").json()["kept"] == 24
    page.get_by_role("button", name="Clear").click()
    summary(seen, "No image yet.")
    check_quiet(seen, port)


def test_adapt_accept_name_and_roll_back(
    visit: Open, port: int, vendor: Path, target: list[Path], tmp_path: Path
) -> None:
    seen = opened(visit, port)
    page = seen.page
    page.get_by_role("button", name="Start an adaptation", disabled=True).wait_for()
    page.locator("#files").set_input_files(target)
    summary(seen, "40 images:")
    before = labels(seen)
    page.locator("#kept", has_text="40 images are kept.").wait_for()
    page.get_by_role("button", name="Start an adaptation").click()
    page.get_by_role("progressbar", name="Progress of the adaptation").wait_for()
    assert page.get_by_role("button", name="Stop").is_visible()
    page.get_by_role("button", name="Accept").wait_for()
    with client(port) as web:
        ready = web.get("/adapt").json()
    said = page.locator("#findings li").all_inner_texts()
    assert [text.lower() for text in said] == [text.lower() for text in ready["findings"]["sentences"]]
    changed = ready["comparison"]["changed"]
    assert f"{changed} of 40 labels would change" in page.locator("#compared").inner_text()
    assert page.locator("#changes li").count() == changed > 0
    assert labels(seen) == before
    assert seen.faults_of_access() == []

    page.get_by_role("button", name="Accept").click()
    page.locator("#state", has_text="serves now").wait_for()
    summary(seen, "40 images:")
    page.locator("#results .was").first.wait_for()
    with client(port) as web:
        records = web.send_images(target).json()["results"]
        model = web.get("/model").json()
    assert labels(seen) == [record["label"] for record in records]
    assert page.locator("#results .was").count() == changed
    assert page.locator("#serving").inner_text().startswith(f"Model {model['hash'][:12]}")

    number = model["clusters"][0]["number"]
    pictures = page.locator("#clusters li").first.locator("img")
    assert pictures.count() == 5
    pictures.first.scroll_into_view_if_needed()
    page.get_by_label(f"Name of cluster {number}").fill("giraffe")
    page.keyboard.press("Enter")
    page.locator("#taught", has_text="giraffe is a class now.").wait_for()
    assert "giraffe" in page.locator("#classes li").all_inner_texts()
    summary(seen, "40 images:")
    inside = [i for i, record in enumerate(records) if record["cluster"] == number]
    page.locator("#results .tag", has_text="giraffe").first.wait_for()
    assert {labels(seen)[i] for i in inside} == {"giraffe"}
    assert seen.faults_of_access() == []

    back = page.get_by_role("button", name="Roll back to the model before")
    serving = page.locator("#serving").inner_text().split(" ·")[0]
    back.dblclick()
    assert f"{serving}, which serves now, is deleted" in page.get_by_role("dialog", name="Roll back").inner_text()
    assert seen.faults_of_access() == []
    page.get_by_role("button", name="Keep it").click()
    assert not [url for url in seen.requests if "/rollback" in url]
    back.click()
    held: list[Any] = []  # until the page was looked at
    page.route("**/model/rollback*", lambda route: held.append(route))
    with page.expect_request("**/model/rollback*"):
        page.get_by_role("button", name="Delete it and roll back").dblclick()
    assert back.is_disabled()
    (request,) = held
    request.continue_()
    page.locator("#model-text", has_text="serves again").wait_for()
    assert page.locator("#serving").inner_text().startswith(f"Model {model['hash'][:12]}"), "one model was given up"
    assert "giraffe" not in page.locator("#classes li").all_inner_texts()
    back.and_(page.locator(":enabled")).wait_for()  # the vendor's model is left
    page.locator("#files").set_input_files(write_grainy_photos(tmp_path / "more", [0, 5], 4, seed=5))
    page.locator("#kept", has_text="48 images are kept.").wait_for()  # without new ones it would not start
    page.get_by_role("button", name="Start an adaptation").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Start an adaptation").wait_for()
    check_quiet(seen, port)


def test_a_cluster_says_how_much_of_it_the_model_was_adapted_to(
    visit: Open, vendor: Path, target: list[Path], tmp_path: Path
) -> None:
    model = usfda.adapt(vendor, target, config=usfda.Config(cache=None))
    model.save(tmp_path / "adapted.usfda")
    assert model.findings is not None
    cluster = model.findings.clusters[0]
    alike = [Path(record.path) for record in model.predictions(target) if record.cluster == cluster.number]
    with running(tmp_path / "adapted.usfda") as port:
        seen = opened(visit, port)
        shown = seen.page.locator("#clusters li")
        field = seen.page.get_by_label(f"Name of cluster {cluster.number}")
        for kept, text in (
            (alike[:1], ": 1 kept image"),
            (alike, f": {len(alike)} kept images"),
        ):
            seen.page.locator("#files").set_input_files(kept)
            title = shown.get_by_role("heading", name=f"Cluster {cluster.number}{text}", exact=True)
            title.wait_for()
            assert shown.get_by_text(f"The model was adapted to about {cluster.samples} images of it").count() == 1
            if kept != alike:
                field.fill("gir")  # half typed when the clusters are shown anew
        seen.page.keyboard.type("affe")
        assert field.input_value() == "giraffe"
        assert seen.faults_of_access() == []
        check_quiet(seen, port)


def test_a_name_of_a_class_and_one_that_is_nearly_so(
    visit: Open, vendor: Path, target: list[Path], tmp_path: Path
) -> None:
    model = usfda.adapt(vendor, target, config=usfda.Config(cache=None))
    model.save(tmp_path / "adapted.usfda")
    name = model.classes_[0]
    with running(tmp_path / "adapted.usfda") as port:
        with client(port) as web:
            web.send_images(target)
        seen = opened(visit, port)
        field = seen.page.get_by_label("Name of cluster 1")
        for given, text in (name, f"Cluster 1 joined the class {name}."), (name.upper(), f"name the cluster {name}."):
            field.fill(given)
            seen.page.keyboard.press("Enter")
            seen.page.locator("#taught", has_text=text).wait_for()
        assert seen.page.locator("#classes li").all_inner_texts() == [*model.classes_, name.upper()]
        check_quiet(seen, port)


@pytest.mark.parametrize("window", WINDOWS)
def test_it_can_be_read_and_reached(visit: Open, port: int, target: list[Path], window: dict[str, Any]) -> None:
    seen = opened(visit, port, **window)
    seen.page.locator("#files").set_input_files([*target[:5], Path(__file__)])
    summary(seen, "6 images:")
    seen.page.locator("#results img[hidden]").wait_for(state="attached")  # rather than as a broken picture
    assert seen.faults_of_access() == []
    assert not seen.scrolls_sideways()
    for name in ("Choose images", "Choose a folder", "Start an adaptation", "Roll back to the model before"):
        assert seen.page.get_by_role("button", name=name).count() == 1
    docs = visit(f"http://127.0.0.1:{port}/docs", **window)
    docs.page.get_by_role("heading", name="/predict").wait_for()
    assert docs.page.locator("section").count() == 13
    assert docs.faults_of_access() == []
    assert docs.page.evaluate(
        "[...document.querySelectorAll('pre')].every((block) => block.scrollWidth <= block.clientWidth)"
    ), "no line is cut off"
    assert not docs.scrolls_sideways()
    for one in (seen, docs):
        check_quiet(one, port)


def test_a_token_is_asked_for_and_kept_by_the_tab(visit: Open, vendor: Path, target: list[Path]) -> None:
    with running(vendor, token="right") as port:
        seen = visit(f"http://127.0.0.1:{port}/")
        page = seen.page
        field = page.get_by_role("textbox", name="Token")
        for token in ("wrong", "right"):
            field.fill(token)
            page.keyboard.press("Enter")
            if token == "wrong":
                page.locator("#ask-text", has_text="not the right token").wait_for()
        page.locator("#serving", has_text="Model").wait_for()
        assert page.evaluate("[sessionStorage.getItem('usfda-token'), localStorage.length, document.cookie]") == [
            *("right", 0, "")
        ]
        page.locator("#files").set_input_files(target[:2])
        summary(seen, "2 images:")
        page.reload()
        page.locator("#serving", has_text="Model").wait_for()
        assert not page.locator("#ask").is_visible()
