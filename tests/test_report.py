"""The report: what is in it, and what a reader can do with it in a real browser."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Open, Visit
from conftest import blobs
from PIL import Image

from usfda import Config, Features, Findings, Model, ProcurementSettings, adapt, evaluate, load, procure, write_report
from usfda.cli.main import main
from usfda.methods.findings import Reliability
from usfda.report.embedding import embed
from usfda.report.pictures import thumbnails
from usfda.text import findings as text
from usfda.text.commands import next_steps
from usfda.text.evaluation import MEANINGS
from usfda.text.report import drawn

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
HOSTILE = '</script><img src=x onerror="hacked=1">'


def data_of(file: Path) -> dict[str, Any]:
    """What the page is made of."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read_text(), re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.fixture(scope="module")
def vendor(photos: Path) -> Model:
    return procure(photos, method="mixture", backbone="pixels", config=Config(cache=None))


@pytest.fixture(scope="module")
def client(vendor: Model, new_photos: Path) -> Model:
    return adapt(vendor, new_photos, config=Config(cache=None))


@pytest.fixture(scope="module")
def vector_client() -> Model:
    vendor = procure(*blobs([0, 1, 2, 3, 4], 30), method="mixture")
    return adapt(vendor, blobs([0, 1, 2, 7, 8], 120, shift=1.0, seed=1)[0])


@pytest.fixture(scope="module")
def report(client: Model, new_photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    write_report(client, new_photos, file, model_name="my client.usfda", config=Config(cache=None))
    return file


@pytest.fixture(scope="module")
def labelled(client: Model, new_photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "labelled.html"
    write_report(client, new_photos, file, labelled=True, config=Config(cache=None))
    return file


def test_it_says_what_the_model_says(client: Model, report: Path, new_photos: Path) -> None:
    data = data_of(report)
    records = list(client.predictions(new_photos, config=Config(cache=None)))
    samples = data["samples"]
    assert [data["folder"] + name for name in samples["name"]] == [record.path for record in records]
    for i, record in enumerate(records):
        known = samples["score"][i] >= data["strictness"]
        assert record.label == (data["classes"][samples["best"][i]] if known else "unknown")
        assert record.cluster == (None if known else samples["cluster"][i])
        assert record.top[0][0] == data["classes"][samples["top"][i][0]]
    assert client.findings is not None
    assert [*data["findings"]["sentences"], data["trust"]] == text.describe(client.findings), "each in its place, once"
    assert sum(data["counts"]) == sum(record.label != "unknown" for record in records)
    for axis in ("x", "y"):
        assert min(samples[axis]) == 0
        assert max(samples[axis]) == 1000


def test_labels_are_looked_at_only_where_that_is_asked_for(vector_client: Model, tmp_path: Path) -> None:
    X, y = blobs([0, 1, 7], 10, seed=3)
    target = Features(X, np.where(y == "c7", "a secret", y))
    write_report(vector_client, target, tmp_path / "r.html")
    assert "secret" not in (tmp_path / "r.html").read_text()
    data = data_of(tmp_path / "r.html")
    assert data["quality"] is None
    assert data["samples"]["truth"] is None
    write_report(vector_client, target, tmp_path / "r.html", labelled=True)
    data = data_of(tmp_path / "r.html")
    assert "a secret" in data["samples"]["truth"]["names"]
    result = evaluate(vector_client, target)
    both = result.keys() & data["quality"].keys()
    assert both >= {*MEANINGS, "per_class", "confusion", "samples"}
    assert all(data["quality"][key] == result[key] for key in both)
    assert [step["name"] for step in data["steps"]] == ["teach", "use it"], "what this report does is no next step"
    counted = sum(n for n, _, _ in data["quality"]["reliability"])
    assert counted == len(X)


def test_a_model_that_was_not_adapted_and_one_of_the_paper(
    photos: Path, new_photos: Path, tmp_path: Path, config: Config, visit: Open
) -> None:
    settings = ProcurementSettings(iterations=12, update_every=4, composites=200)
    vendor = procure(photos, method="all", backbone="pixels", settings=settings, config=config)
    adapted = adapt(vendor, new_photos, method="usfda", settings={"steps": 5}, config=config)
    for name, model, says in (("vendor", vendor, text.NOT_ADAPTED), ("usfda", adapted, text.NOT_MEASURED)):
        file = tmp_path / f"{name}.html"
        write_report(model, new_photos, file, config=config)
        seen = visit(file.as_uri())
        assert says in seen.page.locator("#trust").inner_text().lower()
        assert not seen.page.get_by_role("button", name="Clusters of the unknown").is_visible()
        assert "Procurement: L_CE" in seen.page.locator("#training").inner_text()
        assert ("Adaptation: L_d1" in seen.page.locator("#training").inner_text()) == (name == "usfda")
        assert not seen.errors
    assert "usfda adapt client.usfda" in (tmp_path / "vendor.html").read_text(), "the next step"


@pytest.mark.parametrize("samples", [1, 2, 4, 6])
def test_a_few_samples_or_the_same_one_have_a_place(vector_client: Model, config: Config, samples: int) -> None:
    X = blobs([0, 1], 3, seed=5)[0][:samples]
    for rows in (X, np.repeat(X[:1], samples, 0)):
        places = embed(vector_client, rows, config)
        assert places.shape == (samples, 2)
        assert ((places >= 0) & (places <= 1)).all()


def test_samples_beyond_the_most_go_between_their_neighbours(vector_client: Model, config: Config) -> None:
    X, y = blobs([0, 1, 7], 60, seed=5)
    places = embed(vector_client, X, config, most=60)
    centres = {name: places[::3][y[::3] == name].mean(0) for name in np.unique(y)}
    nearest = [min(centres, key=lambda name: np.linalg.norm(place - centres[name])) for place in places]
    assert np.mean(np.asarray(nearest) == y) > 0.95


def test_pictures_are_as_large_as_there_is_space(photos: Path, tmp_path: Path, config: Config) -> None:
    (tmp_path / "gone.png").write_text("no image any more")
    rng = np.random.default_rng(0)
    large = []
    for i in range(3):
        Image.fromarray(rng.integers(0, 255, (300, 200, 3), np.uint8)).save(tmp_path / f"{i}.png")
        large.append(tmp_path / f"{i}.png")

    def sizes(**options: Any) -> list[tuple[int, int]]:
        found = thumbnails([*large, tmp_path / "gone.png"], config, **options)
        assert found[-1] == ""
        return [Image.open(io.BytesIO(base64.b64decode(text))).size if text else (0, 0) for text in found[:-1]]

    assert sizes() == [(107, 160)] * 3
    assert sizes(space=100) == [(32, 48)] * 3
    assert sizes(most=2) == [(107, 160), (0, 0), (0, 0)], "the first and the last have one"


def test_reliability_and_next_steps() -> None:
    card = {"method": "mixture", "samples": 9, "strictness": 0.5, "unknown_share": 30.0}
    check: dict[str, Any] = {
        "verdict": "better", "expected": {"adapted": 90.0, "class_means": 60.0, "source_network": None},
        "unknown_estimate": 30.0, "unknown_interval": [1.0, 40.0], "absent": [], "clusters": {"1": 2, "4": 7},
    }  # fmt: skip
    found = Findings.of(card | {"check": check})
    steps = {step.name: step.command for step in next_steps(found, "it's mine.usfda", "new photos")}
    assert list(steps) == ["look", "teach", "use it"]
    quoted = "'it'\"'\"'s mine.usfda'"
    taught = "'it'\"'\"'s mine-taught.usfda'"
    assert steps["teach"] == f"usfda teach {quoted} --name 4=NAME --name 1=NAME -o {taught}"
    assert steps["look"] == f"usfda report {quoted} 'new photos' -o report.html"
    assert found.reliability == Reliability.HIGH
    for expected, level in (
        ({"adapted": 70.0, "class_means": 60.0}, Reliability.MEDIUM),
        ({"adapted": 64.0, "class_means": 90.0}, Reliability.LOW),
        ({}, None),
    ):
        other = Findings.of(card | {"check": check | {"expected": expected}})
        assert other.reliability == level
        assert next_steps(other, "m", "t")[0].name == "review"
    kept = Findings.of(card | {"check": check | {"verdict": "kept", "expected": {"adapted": 1.0, "class_means": 90.0}}})
    assert kept.reliability == Reliability.HIGH, "of the decision that is used"
    assert [step.name for step in next_steps(None, "m", "t")] == ["adapt"]
    assert found.likely_interval == (1.0, 40.0)
    assert Findings.of(card | {"check": check | {"unknown_interval": [0.0, 51.0]}}).likely_interval is None


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], cache: Path) -> Callable[..., tuple[int, str]]:
    def call(*args: object) -> tuple[int, str]:
        code = main(["--cache", str(cache), *map(str, args)])
        return code, capsys.readouterr().err

    return call


def test_the_commands(
    run: Callable[..., tuple[int, str]], photos: Path, new_photos: Path, tmp_path: Path, cache: Path
) -> None:
    vendor, client, page = tmp_path / "v.usfda", tmp_path / "c.usfda", tmp_path / "r.html"
    assert run("procure", photos, "-o", vendor, "--for", "mixture", "--backbone", "pixels")[0] == 0
    code, said = run("adapt", vendor, new_photos, "-o", client, "--report", page)
    assert code == 0
    assert said.count("target features") == 1, "the report takes the features that were there"
    data = data_of(page)
    assert (data["model"], data["target"]) == (str(client), str(new_photos))
    assert len(data["pictures"]) == 40
    assert data["quality"] is None
    assert run("report", client, new_photos, "--labelled", "--classes", "kind0,kind4", "-o", page)[0] == 0
    assert set(data_of(page)["quality"]["per_class"]) == {"kind0", "kind4"}
    parts = [new_photos / "kind0", new_photos / "kind4"]  # several targets, as the next step of adapt names them
    assert run("report", client, *parts, "-o", page)[0] == 0
    assert (data_of(page)["target"], len(data_of(page)["pictures"])) == (f"{parts[0]} {parts[1]}", 20)
    assert run("report", vendor, *parts, "-o", page)[0] == 0
    assert f"{vendor} {parts[0]} {parts[1]} -o" in data_of(page)["steps"][0]["command"]
    assert run("report", client, new_photos, photos, "--labelled", "--classes", "kind0,kind4", "-o", page)[0] == 0
    assert {name: of["samples"] for name, of in data_of(page)["quality"]["per_class"].items()} == {
        "kind0": 22,
        "kind4": 10,
    }
    (tmp_path / "list.txt").write_text(f"{new_photos / 'kind0' / '000.png'}\n{new_photos / 'kind4' / '001.png'}\n")
    assert run("report", client, tmp_path / "list.txt", "-o", page)[0] == 0
    assert data_of(page)["samples"]["name"] == ["kind0/000.png", "kind4/001.png"]
    for args, says in (
        ((client, tmp_path / "list.txt", "--labelled", "-o", page), "labels"),
        ((client, new_photos, "-o", tmp_path), "folder"),
        ((client, tmp_path / "gone", "-o", page), "gone"),
        ((client, new_photos), "--output"),
    ):
        code, said = run("report", *args)
        assert code == 2
        assert says in said


def test_images_that_cannot_be_read_are_named(
    run: Callable[..., tuple[int, str]], vendor: Model, new_photos: Path, tmp_path: Path
) -> None:
    """Fault: the report did not tell that some of the target is missing from it."""
    client, page, target = tmp_path / "c.usfda", tmp_path / "r.html", tmp_path / "target"
    vendor.save(tmp_path / "v.usfda")
    shutil.copytree(new_photos, target)
    for i in range(7):
        (target / f"broken{i}.jpg").write_text("no image")
    for command in (
        ("adapt", tmp_path / "v.usfda", target, "-o", client, "--report"),
        ("report", client, target, "-o"),
    ):
        assert run(*command, page)[0] == 0
        lost = data_of(page)["answers"][-1]
        assert [word for word in lost.split() if word.startswith("7")] == ["7"]
        assert lost.count(str(target)) == 5
    assert run("report", client, new_photos, "-o", page)[0] == 0
    assert "broken0" not in page.read_text()


def test_the_time_of_the_features_is_told_with_a_report_as_without(
    run: Callable[..., tuple[int, str]], vendor: Model, new_photos: Path, tmp_path: Path
) -> None:
    """Fault: with a report it was that of passing them on, some 0.00004 s."""
    vendor.save(tmp_path / "v.usfda")
    assert (
        run("adapt", tmp_path / "v.usfda", new_photos, "-o", tmp_path / "c.usfda", "--report", tmp_path / "r.html")[0]
        == 0
    )
    assert load(tmp_path / "c.usfda").deployment["seconds"]["features"] > 0.001, "to decode 40 images"


def test_features_have_no_pictures(vector_client: Model, tmp_path: Path, visit: Open) -> None:
    X, y = blobs([0, 1, 2, 7, 8], 120, shift=1.0, seed=1)
    np.savez(tmp_path / "f.npz", X=X, y=y)
    write_report(vector_client, tmp_path / "f.npz", tmp_path / "r.html", labelled=True)
    seen = visit((tmp_path / "r.html").as_uri())
    page = seen.page
    assert page.locator("img").count() == 0
    assert page.locator("#images-title").inner_text() == "Samples"
    open_view(page, "All")
    assert page.locator("#shown").inner_text() == "All 600 samples."
    assert 10 < page.locator(".card").count() < 300, "only what is near the window exists"
    page.locator(".card").first.focus()
    page.keyboard.press("End")
    last = page.locator(".card:focus")
    assert last.get_attribute("aria-label", timeout=5000) is not None
    assert page.locator(f".card[data-i='{last.get_attribute('data-i')}']").is_visible()
    assert not seen.errors
    assert not seen.faults_of_access()


def open_view(page: Any, name: str) -> None:
    page.get_by_role("button", name=re.compile(rf"^{name} [\d,]+$")).click()
    let_draw(page)


def let_draw(page: Any) -> None:
    """Wait until the page has drawn what it was told: it does so in the next frame, which a busy machine has late."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def shown(page: Any) -> str:
    """What the gallery says of itself, once the page has drawn."""
    let_draw(page)
    return str(page.locator("#shown").inner_text())


def test_a_reader_filters_and_sorts(report: Path, visit: Open) -> None:
    seen = visit(report.as_uri())
    page, data = seen.page, data_of(report)
    assert page.locator("#lead").inner_text().lower() == f"{data['answers'][0].lower()}."
    for line in data["findings"]["sentences"]:
        assert line[1:] in page.locator("#found").inner_text()
    assert shown(page) == "All 40 images."
    page.get_by_label("name or label contains").fill("KIND0/00")
    assert shown(page) == "10 of 40 images."
    page.get_by_label("name or label contains").fill("nothing like it")
    assert shown(page) == "0 of 40 images. Nothing fits; widen the filter."
    page.get_by_role("button", name="Clear the filter").click()
    assert shown(page) == "All 40 images."
    page.get_by_role("combobox", name="label").select_option("unknown")
    assert shown(page) == "20 of 40 images."
    page.get_by_role("combobox", name="label").select_option("all")
    page.get_by_label("score from").fill("0.5")
    assert shown(page) == f"{sum(score >= 0.5 for score in data['samples']['score'])} of 40 images."
    page.get_by_label("score from").fill("0")
    open_view(page, "All")
    for key, order in (("high", -1), ("low", 1)):
        page.get_by_role("combobox", name="sort by").select_option(key)
        shown(page)
        scores = [float(text) for text in page.locator(".card .score").all_inner_texts()]
        assert scores == sorted(scores, key=lambda score: order * score)
        assert len(scores) > 5
    assert not seen.errors
    assert seen.requests == [report.as_uri()], "nothing is asked for but the file itself"


def test_another_strictness(vendor: Model, new_photos: Path, tmp_path: Path, config: Config, visit: Open) -> None:
    write_report(vendor, new_photos, tmp_path / "r.html", config=config)
    page, scores = visit((tmp_path / "r.html").as_uri()).page, data_of(tmp_path / "r.html")["samples"]["score"]
    effect = page.locator("#effect")
    assert effect.get_attribute("aria-live") == "polite"
    for cut, becomes in ((round(min(scores), 2), "known"), (0.8, "unknown")):
        changed = sum(min(cut, 0.5) <= score < max(cut, 0.5) for score in scores)
        labelled = sum(score >= cut for score in scores)
        assert 0 < changed < 40
        page.get_by_role("slider", name="Strictness").fill(str(cut))
        shown(page)
        assert f"{labelled} labelled, {40 - labelled} unknown" in effect.inner_text()
        assert re.search(rf" {changed} images? would become {becomes}\.", effect.inner_text())
        assert page.get_by_role("button", name=f"Copy option: --strictness {cut:.2f}").is_visible()
    lost = changed
    page.get_by_role("button", name="Show them").click()
    assert shown(page) == f"{lost} of 40 images."
    assert page.locator(".card .note").first.inner_text().startswith("was kind")
    page.get_by_role("button", name="Back to 0.50").click()
    assert shown(page) == "All 40 images."
    assert "model’s own" in effect.inner_text()


def point_of(page: Any, i: int) -> tuple[float, float]:
    """Where a sample is drawn, in the window."""
    page.locator("#map").scroll_into_view_if_needed()
    box, (x, y) = page.locator("#map").bounding_box(), page.evaluate(f"placeOf({i})")
    return box["x"] + x, box["y"] + y


def test_the_map_and_the_gallery_are_one(report: Path, visit: Open) -> None:
    page = visit(report.as_uri()).page
    tip, chosen = page.locator(".tip"), page.locator("#inspector")
    page.mouse.move(*point_of(page, 0))
    assert tip.is_visible()
    assert tip.locator("img").get_attribute("src", timeout=5000)
    page.mouse.click(*point_of(page, 0))
    assert chosen.is_visible()
    name = chosen.locator(".path").inner_text()
    card = page.locator(".card[aria-current]")
    assert Path(name).name in str(card.get_attribute("aria-label"))
    assert card.is_visible()
    page.keyboard.press("Escape")
    assert not chosen.is_visible()
    drawn = "document.querySelectorAll('#map canvas')[1].toDataURL()"
    page.mouse.move(0, 0)
    before = page.evaluate(drawn)
    page.locator(".card").nth(1).hover()
    assert page.evaluate(drawn) != before, "the point of what is under the mouse is marked"
    page.get_by_role("combobox", name="colour").select_option("score")
    page.get_by_role("button", name="Enlarge the map").click()
    assert page.locator("#map.zoomed").count() == 1
    assert "40 images" in str(page.locator("#map canvas").first.get_attribute("aria-label"))


def test_clusters_are_named_and_taught_in_one_line(report: Path, visit: Open) -> None:
    page = visit(report.as_uri(), permissions=["clipboard-read", "clipboard-write"]).page
    open_view(page, "Clusters of the unknown")
    line = page.locator("#teaching code")
    assert re.fullmatch(r"usfda teach 'my client.usfda' --name \d+=NAME -o 'my client-taught.usfda'", line.inner_text())
    page.get_by_label("Name of cluster 2").fill("zebra's")
    page.get_by_label("Name of cluster 1").fill("giraffe")
    quoted = "'2=zebra'\"'\"'s'"
    wanted = f"usfda teach 'my client.usfda' --name 1=giraffe --name {quoted} -o 'my client-taught.usfda'"
    assert line.inner_text() == wanted
    page.locator("#teaching button").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == wanted


def test_by_keyboard(report: Path, visit: Open) -> None:
    page = visit(report.as_uri()).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.locator("#sort").focus()
    let_draw(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip the gallery"
    page.keyboard.press("Tab")
    visited = []
    for key in ("", "ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key) if key else None
        visited.append(page.evaluate("document.activeElement.dataset.i"))
    assert len(set(visited)) == 3, visited
    assert visited[0] == visited[4]
    assert visited[1] == visited[3]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
    page.keyboard.press("Enter")
    assert page.locator("#inspector").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#inspector").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{}, PHONE], ids=["desk", "phone"])
def test_it_is_accessible(labelled: Path, visit: Open, scheme: str, size: dict[str, Any]) -> None:
    seen = visit(labelled.as_uri(), color_scheme=scheme, **size)
    page = seen.page
    assert not seen.faults_of_access()
    open_view(page, "Clusters of the unknown")
    page.locator(".card").first.click()
    page.locator("summary", has_text="Adaptation").click()
    assert not seen.faults_of_access()
    assert not seen.scrolls_sideways()
    for role, name in (
        ("main", None), ("navigation", "Sections"), ("slider", "Strictness"), ("complementary", "Chosen image"),
        ("table", "What is taken for what"), ("region", "Class by class"),
    ):  # fmt: skip
        assert page.get_by_role(role, name=name).count() == 1, (role, name)  # type: ignore[arg-type]
    page.get_by_role("button", name="Dark colours" if scheme == "light" else "Light colours").click()
    assert not seen.faults_of_access()
    assert not seen.errors


def test_a_tap_on_a_phone(report: Path, visit: Open) -> None:
    seen = visit(report.as_uri(), **PHONE)
    page = seen.page
    page.touchscreen.tap(*point_of(page, 5))
    assert page.locator("#inspector").is_visible()
    page.get_by_role("button", name="Show in the gallery").tap()
    assert page.locator(".card[aria-current]").is_visible()
    assert not seen.scrolls_sideways()
    assert not seen.errors


def test_nothing_is_cut_off_on_a_phone(tmp_path: Path, visit: Open) -> None:
    """All sections can be seen in the bar, a card wraps, and a long name leaves room for the button beside it."""
    X, y = blobs([0, 1, 2, 7], 20)
    settings = ProcurementSettings(iterations=12, update_every=4, composites=200)  # with curves, so all sections
    model = procure(X, np.array([f"a_rather_long_name_of_{name}" for name in y]), method="all", settings=settings)
    write_report(model, Features(X, y), tmp_path / "r.html", labelled=True)
    seen = visit((tmp_path / "r.html").as_uri(), **PHONE)
    page = seen.page
    assert page.locator(".bar nav a:visible").count() == 5
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    page.locator("#gallery").scroll_into_view_if_needed()
    page.locator(".heading .quiet").first.wait_for()
    for box in page.locator(".bar nav, #parts .scroller, #gallery .heading").all():
        assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight")
    assert page.locator(".heading .quiet:visible").count() > 1
    assert not seen.errors


def test_paper_shows_the_first_images_of_the_gallery(
    report: Path, vector_client: Model, tmp_path: Path, visit: Open
) -> None:
    """They are drawn as one scrolls, which nobody does on paper; a line says where the others are."""
    write_report(vector_client, blobs([0, 1, 2, 7, 8], 120, shift=1.0, seed=1)[0], tmp_path / "vectors.html")
    for file in (report, tmp_path / "vectors.html"):
        seen = visit(file.as_uri())
        page = seen.page
        page.evaluate("addEventListener('beforeprint', () => (globalThis.printed = document.body.cloneNode(true)))")
        let_draw(page)
        before = page.locator(".card").count()
        content = page.pdf()
        let_draw(page)
        assert page.locator(".card").count() == before, "it is as before when that is done"
        cards, pictures, says = page.evaluate("""[
            printed.querySelectorAll(".card").length,
            new Set([...printed.querySelectorAll(".card img")].map((image) => image.src)).size,
            printed.querySelector("#unprinted").textContent,
        ]""")
        assert cards >= before + 30, "those that lie far below the window as well"
        assert content.count(b"/Subtype /Image") >= pictures == (cards if file == report else 0)
        total, word = (40, "images") if file == report else (600, "samples")
        assert says == f"{cards} of {total} {word}; open this page in a browser to see the others."
        assert not seen.errors


def test_figures_of_a_labelled_report(client: Model, labelled: Path, new_photos: Path, visit: Open) -> None:
    page = visit(labelled.as_uri()).page
    result = evaluate(client, new_photos, config=Config(cache=None))
    figures = page.locator("#metrics dl > div")
    assert figures.count() == 8
    assert f"{result['h_score']:.1f}" in figures.filter(has_text="h_score").inner_text()
    assert page.locator("#per-class tbody tr").count() == 4
    numbers = [int(text) for text in page.locator("#confusion tbody td").all_inner_texts() if text]
    assert sum(numbers) == 40
    assert page.locator("#reliability circle").count() == len(data_of(labelled)["quality"]["reliability"])
    colours = page.get_by_role("combobox", name="colour").locator("option").all_inner_texts()
    assert colours == ["label", "score", "right or wrong"]


def test_hostile_names_are_never_run(tmp_path: Path, visit: Open) -> None:
    X, y = blobs([0, 1, 2], 20)
    names = np.where(y == "c0", HOSTILE, np.where(y == "c1", "{{script}}<!--", y))
    model = procure(X, names, method="mixture")
    folder = tmp_path / "<img src=x onerror=hacked=2>"
    folder.mkdir()
    paths = [folder / f"<svg onload=hacked=3>{i}.png" for i in range(len(X))]
    for path in paths:
        Image.new("RGB", (8, 8)).save(path)
    adapted = adapt(model, Features(X, paths=paths))
    adapted.deployment["settings"]["note"] = HOSTILE
    labels = np.where(y == "c2", "<script>hacked=4</script>", names)
    target = Features(X, labels, paths=paths)
    write_report(adapted, target, tmp_path / "r.html", labelled=True, model_name=HOSTILE, target_name=HOSTILE)
    seen: Visit = visit((tmp_path / "r.html").as_uri())
    page = seen.page
    assert HOSTILE in page.title()
    for view in ("By class", "Mistakes", "All"):
        open_view(page, view)
        page.locator(".card").first.click()
        page.mouse.move(*point_of(page, 0))
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    assert HOSTILE in page.locator("#classes").inner_text()
    assert HOSTILE in page.locator("#parts").inner_text()
    assert page.locator("img:not([src^='data:image/webp'])").count() == 0
    assert page.evaluate("typeof hacked") == "undefined"
    assert not seen.errors
    assert len(seen.requests) == 1


def test_of_very_many_samples_some_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("usfda.report.build.MOST", 30)
    X, y = blobs([0, 1, 2], 20)
    model = procure(X, y, method="mixture")
    write_report(model, X, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert drawn(30, 60) in page
    rows = [int(row) for row in re.findall(r'"row (\d+)"', page)]
    assert len(rows) == 30
    assert max(rows) > 30  # as they are called in the whole
