from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread, Timer

import hostile
import httpx
import numpy as np
import pytest
from PIL import Image
from serving import HOST, PATIENCE, Client, client, program, running, write_grainy_photos

import usfda
from usfda.backbones.backbone import Backbone
from usfda.backbones.zoo import get_backbone
from usfda.cli.main import main
from usfda.errors import UnreadableImage
from usfda.service.batching import Batcher, Busy
from usfda.service.kept import Image as Upload
from usfda.service.kept import OnDisk
from usfda.service.limits import Limits
from usfda.service.models import Models
from usfda.text import service as text

SMALL = Limits(
    body=200_000, files=4, held=300_000, seconds=1.0, idle=1.0, memory_images=5, needed=3, waiting=40, connections=40
)


@pytest.fixture(scope="session")
def vendor(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    file = tmp_path_factory.mktemp("vendor") / "vendor.usfda"
    usfda.procure(photos, backbone="pixels", method="mixture", config=usfda.Config(cache=None)).save(file)
    return file


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Kinds 0 and 1, which the vendor knows, 4 and 5, which are new."""
    return write_grainy_photos(tmp_path_factory.mktemp("target") / "photos", [0, 1, 4, 5], 10)


@pytest.fixture(scope="module")
def port(vendor: Path) -> Iterator[int]:
    with running(vendor) as found:
        yield found


@pytest.fixture(scope="module")
def small(vendor: Path) -> Iterator[int]:
    with running(vendor, limits=SMALL) as found:
        yield found


@pytest.fixture
def web(port: int) -> Iterator[Client]:
    with client(port) as opened:
        yield opened


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


# Predictions


def test_a_folder_with_a_model_is_served(vendor: Path, tmp_path: Path) -> None:
    (tmp_path / "model.usfda").write_bytes(vendor.read_bytes())
    with running(tmp_path) as port, client(port) as web:
        assert web.get("/model").json()["hash"] == sha256(vendor)


def test_records_are_those_of_the_library(web: Client, vendor: Path, target: list[Path]) -> None:
    answer = web.send_images(target)
    assert answer.status_code == 200
    assert answer.json()["model"] == sha256(vendor)
    records = usfda.load(vendor).predictions(target, config=usfda.Config(cache=None))
    assert answer.json()["results"] == [
        json.loads(json.dumps(asdict(record) | {"path": Path(record.path).name})) for record in records
    ]
    assert web.send_images(target).json() == answer.json()  # of the vectors that are kept


def test_a_file_that_cannot_be_read_is_a_record(web: Client, target: list[Path]) -> None:
    whole = target[0].read_bytes()
    files = [("a.png", whole), ("b.txt", b"no image"), ("c.png", whole[: len(whole) // 2]), ("d.png", b"")]
    answer = web.post("/predict", files=[("files", file) for file in files])
    assert answer.status_code == 200
    good, unread, torn, empty = answer.json()["results"]
    assert good["label"]
    assert unread["path"] == "b.txt"
    assert unread["error"]
    assert torn == {"path": "c.png", "error": text.DAMAGED}
    assert "label" not in empty


@pytest.mark.parametrize(
    ("call", "status", "says"),
    [
        ({"files": [("files", ("a.jpg", b"no image"))]}, 422, "files"),
        ({"files": [("images", ("a.jpg", b"x"))]}, 422, "files"),
        ({"data": {"files": "a"}}, 415, "multipart"),
        ({"json": [1]}, 415, "multipart"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "boundary"),
        ({"content": b"no", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, 400, "multipart"),
        ({"files": [("files", ("a.jpg", b"x"))], "params": {"keep": "perhaps"}}, 422, "keep"),
    ],
)
def test_a_bad_upload_is_told_what_is_wrong(web: Client, call: dict[str, object], status: int, says: str) -> None:
    answer = web.post("/predict", **call)  # type: ignore[arg-type]
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_a_bomb_is_refused_and_does_no_harm(web: Client, target: list[Path]) -> None:
    image = Image.new("1", (10_000, 10_000))
    image.save(bomb := io.BytesIO(), "PNG")
    answer = web.post("/predict", files=[("files", ("a.png", bomb.getvalue())), ("files", target[0].open("rb"))])
    assert answer.status_code == 200
    assert "refused" in answer.json()["results"][0]["error"]
    assert answer.json()["results"][1]["label"]


# Batches


class Watched(Backbone):
    """One that waits until it is let go, and notes how large its batches are."""

    go: Event
    sizes: list[int]

    def run(self, images: np.ndarray) -> np.ndarray:
        self.sizes.append(len(images))
        assert self.go.wait(PATIENCE)
        return super().run(images)


def watched() -> Watched:
    pixels = get_backbone("pixels")
    made = Watched(pixels.name, pixels.onnx, pixels.record)
    object.__setattr__(made, "go", Event())
    object.__setattr__(made, "sizes", [])
    return made


def test_batches_form_by_themselves(target: list[Path]) -> None:
    m = watched()
    batcher = Batcher(m, 1, 1000)
    contents = [file.read_bytes() for file in target]
    until = time.monotonic() + PATIENCE

    def wait_for(there: Callable[[], bool]) -> None:
        while not there():
            assert time.monotonic() < until
            time.sleep(0.01)

    vectors = batcher.submit(contents[:1])
    wait_for(lambda: m.sizes == [1])  # it does not wait for others
    vectors += batcher.submit(contents[1:])
    wait_for(lambda: batcher._prepared.qsize() >= batcher.batch)
    m.go.set()
    X = np.stack([vector.result(PATIENCE) for vector in vectors])
    assert sum(m.sizes) == len(contents)
    assert m.sizes[1] == batcher.batch  # those that came while it ran go together
    assert max(m.sizes) == batcher.batch > 1
    batcher.submit(contents[:1])[0].result(PATIENCE)
    assert m.sizes[-1] == 1  # one alone does not wait for others
    batcher.close()
    assert np.allclose(X, get_backbone("pixels").run(np.stack([m.prepare(content) for content in contents])))
    assert batcher.waiting == 0


def test_a_small_request_does_not_wait_for_a_large_one(target: list[Path]) -> None:
    m = watched()
    batcher = Batcher(m, 1, 1000)
    done: list[str] = []
    large = batcher.submit([target[0].read_bytes()] * 300)
    small = batcher.submit([target[1].read_bytes()])
    for vector in large:
        vector.add_done_callback(lambda _: done.append("large"))
    small[0].add_done_callback(lambda _: done.append("small"))
    m.go.set()
    batcher.close()
    assert len(done) == 301
    assert done.index("small") < 150


def test_more_than_may_wait_is_refused(target: list[Path]) -> None:
    m = watched()
    batcher = Batcher(m, 1, 10)
    vectors = batcher.submit([target[0].read_bytes()] * 8 + [b"no image"])
    with pytest.raises(Busy):
        batcher.submit([target[0].read_bytes()] * 3)
    m.go.set()
    with pytest.raises(UnreadableImage):
        vectors[-1].result(PATIENCE)
    batcher.close()
    assert batcher.waiting == 0


# Limits


def test_too_large_a_body_is_refused(small: int) -> None:
    with client(small) as web:
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = web.post("/predict", content=b"x" * (SMALL.body + 1), headers=kind)
        assert answer.status_code == 413
        assert "MiB" in answer.json()["detail"]
        head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        chunked = web.post("/predict", content=iter([head, *[b"x" * 50_000] * 5]), headers=kind)
        assert chunked.status_code == 413
        cut = web.post("/predict", content=iter([head, *[b"x" * 40_000] * 2]), headers=kind)
        assert (cut.status_code, cut.json()["detail"]) == (422, "no file: send images in the field files")
        assert web.post("/teach", content=b"x" * (SMALL.command + 1)).status_code == 413
        assert web.get("/healthz").status_code == 200


def test_an_endless_body_is_cut_off(small: int) -> None:
    with socket.create_connection((HOST, small), PATIENCE) as raw:
        raw.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        batch = b"--b\r\n" + b"x" * 9995

        def pour() -> None:
            for _ in range(100_000):
                raw.sendall(b"%x\r\n%b\r\n" % (len(batch), batch))

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            pour()


def test_a_body_of_tiny_chunks_is_cut_off(web: Client, port: int) -> None:
    """A million of them kept everybody else waiting for seconds."""
    with socket.create_connection((HOST, port), PATIENCE) as raw:
        raw.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

        def pour() -> None:
            for _ in range(100):
                raw.sendall(b"1\r\nx\r\n" * 10_000)

        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            pour()
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    head = b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\n'
    pieces = [head, *[b"x"] * 3000, *[b"x" * 300] * 3000, b"\r\n--b--\r\n"]
    answer = web.post("/predict", content=iter(pieces), headers=kind)
    assert answer.json()["detail"] == "no file: send images in the field files"


def test_a_slow_body_is_refused_and_a_slow_head_is_cut_off(small: int) -> None:
    with socket.create_connection((HOST, small), PATIENCE) as raw:
        raw.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Content-Length: 1000\r\n\r\n--b\r\n"
        )
        assert raw.recv(1000).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection((HOST, small), PATIENCE) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        assert raw.recv(1000) == b""


def test_too_many_files_and_connections_are_refused(small: int, target: list[Path]) -> None:
    with client(small) as web:
        assert web.send_images(target[:4]).status_code == 200
        answer = web.send_images(target[:5])
        assert answer.status_code == 400
        assert "4" in answer.json()["detail"]
    idle = [socket.create_connection((HOST, small), PATIENCE) for _ in range(SMALL.connections + 10)]
    cut = 0
    for one in idle:
        with one:
            one.settimeout(0.01)
            with suppress(TimeoutError):
                cut += one.recv(1) == b""
    assert cut >= 10
    with client(small) as web:
        assert web.get("/healthz").status_code == 200


def test_images_in_memory_are_bounded_and_kept_once(small: int, target: list[Path]) -> None:
    with client(small) as web:
        for file in [*target[:8], *target[4:8]]:
            assert web.send_images([file]).status_code == 200
        assert web.send_images([target[9]], keep=False).status_code == 200
        assert web.get("/adapt").json()["kept"] == SMALL.memory_images
        there = [web.get(f"/kept/{sha256(file)}").status_code for file in target[:10]]
        assert there == [404, 404, 404, 200, 200, 200, 200, 200, 404, 404]
        picture = web.get(f"/kept/{sha256(target[7])}")
        assert Image.open(io.BytesIO(picture.content)).format == "JPEG"


# Who may ask


def test_a_token_is_asked_for(vendor: Path, target: list[Path]) -> None:
    with running(vendor, token="right") as port, client(port) as web:
        for token, status in [(None, 401), ("wrong", 401), ("right!", 401), ("right", 200)]:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            answer = web.post("/predict", files={"files": target[0].open("rb")}, headers=headers)
            assert answer.status_code == status
            if status == 401:
                assert ("send the token" if token is None else "this token is wrong") in answer.json()["detail"]
            for path in ("/model", "/adapt", "/metrics"):
                assert web.get(path, headers=headers).status_code == status
        assert web.get("/model", headers={"Authorization": "Basic right"}).status_code == 401
        assert web.get("/model", headers={"Authorization": "bearer right"}).status_code == 200
        for path in ("/", "/page.js", "/page.css", "/docs", "/docs.js", "/openapi.json", "/healthz"):
            assert web.get(path).status_code == 200, path
        assert (probe := web.head("/healthz")).status_code == 200
        assert not probe.content
        for path in ("/adapt", "/adapt/accept", "/adapt/discard", "/model/rollback", "/teach"):
            assert web.post(path).status_code == 401
        assert web.get("/healthz", headers={"Host": "service.example"}).status_code == 200


def test_a_page_elsewhere_cannot_drive_it(web: Client, port: int, target: list[Path]) -> None:
    def ask(**headers: str) -> int:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.post("/adapt/discard", headers=names).status_code

    assert ask() == 409
    assert ask(Origin=f"http://{HOST}:{port}") == 409
    assert ask(Origin="http://elsewhere.example") == 403
    assert ask(Origin="null") == 403
    assert ask(Origin=f"http://{HOST}:{port + 1}") == 403
    assert ask(Sec_Fetch_Site="cross-site") == 403
    assert ask(Sec_Fetch_Site="CROSS-SITE") == 403
    assert ask(Sec_Fetch_Site="anything") == 403
    assert ask(Sec_Fetch_Site="same-origin") == 409
    assert ask(Sec_Fetch_Site="none") == 409
    for host, status in [
        ("elsewhere.example", 403),
        (f"elsewhere.example:{port}", 403),
        ("localhost.elsewhere.example", 403),
        ("[", 403),
        ("127.0.0.1:80, evil", 403),
        ("127.0.0.1/evil", 403),
        ("evil@127.0.0.1", 403),
        ("127.0.0.1?evil", 403),
        ("127.0.0.1#evil", 403),
        ("127.0.0.1:80:80", 403),
        ("127.0.0.1:", 403),
        ("[127.0.0.1", 403),
        (f"LOCALHOST:{port}", 200),
        ("127.0.0.2", 200),
        (f"localhost:{port}", 200),
        (f"[::1]:{port}", 200),
    ]:
        assert web.get("/model", headers={"Host": host}).status_code == status, host
    answer = web.get("/model", headers={"Origin": "http://elsewhere.example"})
    assert "access-control-allow-origin" not in answer.headers
    assert "'unsafe-inline'" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0"], "USFDA_TOKEN"),
        (["--host", "::"], "USFDA_TOKEN"),
        (["--host", "no.such.host.example"], "no.such.host"),
        (["--token", "with a blank"], "--token"),
        (["--token", ""], "--token"),
        (["--port", "{taken}"], "--port"),
        (["--data", "{file}"], "--data"),
    ],
)
def test_a_wrong_call_is_one_line(
    vendor: Path, port: int, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [option.format(taken=port, file=vendor / "folder") for option in options]
    assert main(["serve", str(vendor), *call]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_an_empty_variable_does_not_open_the_service(
    vendor: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("USFDA_TOKEN", "")
    assert main(["serve", str(vendor), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert "USFDA_TOKEN" in said
    assert said.count("\n") == 1


def test_a_model_that_cannot_serve_is_one_line(tmp_path: Path, vendor: Path) -> None:
    usfda.load(vendor).save(tmp_path / "bare.usfda", backbone=False)
    (tmp_path / "text.usfda").write_text("no model")
    for name, says in [("bare", "backbone"), ("text", "damaged"), ("gone", "gone")]:
        with pytest.raises(usfda.InputError, match=says) as error:
            Models(tmp_path / f"{name}.usfda", tmp_path / "data", 3)
        assert str(error.value).startswith(str(tmp_path / f"{name}.usfda"))


def test_a_model_that_was_accepted_and_damaged_is_not_served(tmp_path: Path, vendor: Path) -> None:
    models = Models(vendor, tmp_path, 3)
    models.current.model.card["procurement"]["seed"] = 7
    accepted = tmp_path / "models" / f"{models.add(models.current.model).entry.sha256}.usfda"
    assert Models(vendor, tmp_path, 3).file() == accepted
    accepted.write_bytes(accepted.read_bytes()[:-1] + b"x")
    with pytest.raises(usfda.InputError, match="damaged"):
        Models(vendor, tmp_path, 3)


def test_earlier_models_are_bounded(tmp_path: Path, vendor: Path) -> None:
    models = Models(vendor, tmp_path, 3)
    made = [sha256(vendor)]
    for seed in range(1, 6):
        models.current.model.card["procurement"]["seed"] = seed
        made.append(models.add(models.current.model).entry.sha256)
    assert models.earlier == 3
    assert {file.stem for file in (tmp_path / "models").glob("*.usfda")} == {made[0], *made[-4:]}
    for earlier in (made[-2], made[-3], made[-4]):
        assert models.rollback().entry.sha256 == earlier
    assert models.earlier == 0
    assert Models(vendor, tmp_path, 3).current.entry.sha256 == made[-4]


def test_vectors_of_images_that_made_way_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usfda.service.kept.SPARE", 20)
    monkeypatch.setattr("usfda.service.kept.STORED", 8)
    backbone = get_backbone("pixels")
    kept = OnDisk(tmp_path, backbone, 0, 10, 10**9, 100)
    sizes = []
    for i in range(300):
        vector = np.full(backbone.dim, i, np.float32)
        kept.add([Upload(hashlib.sha256(b"%d" % i).digest(), b"%d" % i, vector)])
        sizes.append(sum(file.stat().st_size for file in tmp_path.glob("features/*/vectors-*.bin")))
    assert max(sizes) <= (2 * 10 + 20 + 8) * 4 * backbone.dim
    keys, vectors = kept.vectors([key for key, _ in kept.places()])
    assert sorted(int(vector[0]) for vector in vectors[:]) == list(range(290, 300))
    again = OnDisk(tmp_path, backbone, 0, 10, 10**9, 100)
    assert len(again.vectors(keys)[0]) == 10


def test_a_full_disk_is_told_of_and_changes_nothing(
    vendor: Path, target: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted = usfda.adapt(vendor, target, config=usfda.Config(cache=None))
    assert adapted.findings is not None
    assert adapted.findings.clusters
    adapted.save(tmp_path / "client.usfda")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with running(tmp_path / "client.usfda", tmp_path / "data") as port, client(port) as web:
        before = web.get("/model").json()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            answer = web.post("/teach", json={"1": "okapi"})
        assert answer.status_code == 500
        assert answer.json()["detail"].startswith("the disk of the service is full; nothing has changed")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert web.get("/model").json() == before
        assert web.post("/teach", json={"1": "okapi"}).status_code == 200


def test_the_service_needs_neither_torch_nor_scikit_learn() -> None:
    code = "import sys, usfda.service.run; print([n for n in ('torch', 'sklearn') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Adaptation


def test_adapt_accept_teach_and_roll_back(vendor: Path, target: list[Path], tmp_path: Path) -> None:
    data, first = tmp_path / "data", sha256(vendor)
    with program(vendor, "--data", data) as started, client(started.port) as web:
        assert data.stat().st_mode & 0o777 == 0o700
        assert web.get("/adapt").json() | {"needed": 0} == {
            "state": "idle", "progress": 0, "findings": None, "comparison": None, "kept": 0, "needed": 0
        }  # fmt: skip
        for path, says in [
            ("/adapt", text.too_few(0, 16)),
            ("/adapt/accept", text.NOT_READY),
            ("/adapt/discard", text.NO_ADAPTATION),
            ("/model/rollback", text.NO_EARLIER),
        ]:
            answer = web.post(path)
            assert answer.status_code == 409
            assert answer.json()["detail"] == says
        assert web.post("/teach", json={"1": "new"}).status_code == 409
        web.send_images(target[:1])
        assert web.post("/adapt").json()["detail"] == text.too_few(1, 16)
        before = web.send_images(target).json()["results"]
        assert web.post("/adapt").status_code == 202
        assert web.post("/adapt").status_code == 409
        assert web.post("/model/rollback").status_code == 409
        ready = web.wait("ready", "failed")
        assert (ready["state"], ready["progress"]) == ("ready", 1)
        assert web.send_images(target[:1]).json()["model"] == first  # nothing changes by itself
        accepted = web.post("/adapt/accept").json()["model"]
        after = web.send_images(target).json()
        assert after["model"] == accepted != first
        changed = [
            {"image": sha256(file), "before": a["label"], "after": b["label"]}
            for file, a, b in zip(target, before, after["results"], strict=True)
            if a["label"] != b["label"]
        ]
        assert changed
        assert ready["comparison"] == {"images": len(target), "changed": len(changed), "changes": changed}
        model = usfda.load(data / "models" / f"{accepted}.usfda")
        assert model.findings is not None
        found = web.get("/model").json()
        assert found["hash"] == accepted
        assert found["classes"] == model.classes_
        assert found["findings"]["sentences"] == ready["findings"]["sentences"] == usfda.describe(model.findings)
        assert ready["findings"]["reliability"] == model.findings.reliability
        assert found["earlier"] == 1

        cluster = found["clusters"][0]
        inside = [file for file, r in zip(target, after["results"], strict=True) if r["cluster"] == cluster["number"]]
        assert cluster["images"] == len(inside)
        sizes = {of.number: of.samples for of in model.findings.clusters}
        assert {of["number"]: of["samples"] for of in found["clusters"]} == sizes
        assert set(cluster["examples"]) <= {sha256(file) for file in inside}
        for names, says in [({"99": "a"}, "99"), ({"1": "unknown"}, "unknown"), ({"x": "a"}, ""), ({}, "")]:
            answer = web.post("/teach", json=names)
            assert answer.status_code == 422
            assert says in answer.json()["detail"]
        for headers in ({}, {"Content-Type": "application/x-www-form-urlencoded"}):
            answer = web.post("/teach", content=b"no JSON", headers=headers)
            assert answer.status_code == 422
            assert "application/json" in answer.json()["detail"]
        other, joined = found["clusters"][1]["number"], model.classes_[0]
        answer = web.post("/teach", json={str(cluster["number"]): joined, str(other): joined.upper()}).json()
        assert answer["classes"] == [*model.classes_, joined.upper()]
        (warning,) = answer["warnings"]
        assert warning == text.similar_name(joined.upper(), joined)
        assert web.post("/model/rollback").json()["model"] == accepted
        taught = web.post("/teach", json={str(cluster["number"]): "giraffe"}).json()
        assert taught["warnings"] == []
        assert taught["classes"] == [*model.classes_, "giraffe"]
        now = web.send_images(inside).json()
        assert now["model"] == taught["model"]
        assert [record["label"] for record in now["results"]].count("giraffe") > len(inside) / 2

        assert web.post("/model/rollback", params={"model": taught["model"]}).json()["model"] == accepted
        twice = web.post("/model/rollback", params={"model": taught["model"]})
        assert twice.status_code == 409, "one that was sent twice gives up one model"
        assert web.send_images(target).json() == after
        named = {str(cluster["number"]): "giraffe"}
        refused = web.post("/teach", json=named, params={"model": taught["model"]})
        assert refused.status_code == 409
        assert web.post("/teach", json=named, params={"model": accepted}).json()["model"] == taught["model"]

        again = web.post("/adapt")
        assert again.status_code == 409, "what the model has seen would count twice"
        assert again.json()["detail"] == text.too_few_new(0, 2)
        more = write_grainy_photos(tmp_path / "more", [0, 5], 10, seed=5)
        assert web.send_images(more).status_code == 200
        assert web.post("/adapt").status_code == 202
        ready = web.wait("ready", "failed")
        assert (ready["findings"]["samples"], ready["findings"]["earlier_samples"]) == (20, 40)  # the new ones
        assert ready["comparison"]["images"] == 60
        assert [one["name"] for one in ready["findings"]["taught"]] == ["giraffe"]
        assert web.post("/adapt/discard").json()["state"] == "idle"
        assert web.post("/adapt/accept").status_code == 409
        started.end(signal.SIGKILL)
        said = text.taught({cluster["number"]: joined, other: joined.upper()}, model.classes_)
        assert f"{said}\n" in started.said
    with program(vendor, "--data", data) as started, client(started.port) as web:  # it was killed
        assert f"{taught['model'][:12]}" in started.said
        assert web.get("/model").json()["hash"] == taught["model"]
        assert web.get("/adapt").json()["kept"] == 60
        second = subprocess.run(
            [sys.executable, "-m", "usfda", "serve", str(vendor), "--data", str(data), "--port", "0"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert second.returncode == 2
        assert str(data) in second.stderr


@pytest.mark.parametrize("on_disk", [False, True])
def test_an_image_that_made_way_does_not_count_again(
    vendor: Path, target: list[Path], tmp_path: Path, on_disk: bool
) -> None:
    """Unless no adaptation was given it; and after its folder was deleted, what comes is new."""
    early = write_grainy_photos(tmp_path / "early", [0, 5], 10, seed=6)
    other = write_grainy_photos(tmp_path / "other", [0, 1, 4, 5], 10, seed=5)
    limits, data = Limits(memory_images=40, disk_images=40), tmp_path / "data" if on_disk else None

    def adapt(web: Client) -> tuple[int, int]:
        assert web.post("/adapt").status_code == 202
        found = web.wait("ready", "failed")["findings"]
        assert web.post("/adapt/accept").status_code == 200
        return found["samples"], found["earlier_samples"]

    with running(vendor, data, limits=limits) as port, client(port) as web:
        web.send_images(early)
        web.send_images(target)  # all of the others make way
        assert adapt(web) == (40, 0)
        web.send_images(other)
        assert adapt(web) == (40, 40)
        web.send_images(target)
        again = web.post("/adapt")
        assert again.status_code == 409
        assert again.json()["detail"] == text.too_few_new(0, 2)
        web.send_images(early)
        assert adapt(web) == (20, 80)
    if data is not None:
        for folder in ("images", "features"):  # as the page says for those who want to forget them
            shutil.rmtree(data / folder)
        left = b"".join(file.read_bytes() for file in data.rglob("*") if file.is_file())
        assert not any(bytes.fromhex(sha256(file)) in left for file in (*early, *target, *other))
        with running(vendor, data, limits=limits) as port, client(port) as web:
            web.send_images(write_grainy_photos(tmp_path / "later", [0, 1, 4, 5], 10, seed=7))
            assert adapt(web) == (40, 100)


def test_a_model_that_was_taught_elsewhere_has_had_its_images(vendor: Path, target: list[Path], tmp_path: Path) -> None:
    data, taught = tmp_path / "data", tmp_path / "taught.usfda"
    with running(vendor, data) as port, client(port) as web:
        web.send_images(target)
        web.post("/adapt")
        web.wait("ready", "failed")
        accepted = data / "models" / f"{web.post('/adapt/accept').json()['model']}.usfda"
        web.send_images(write_grainy_photos(tmp_path / "more", [0, 5], 10, seed=5))
    usfda.teach(accepted, names={1: "giraffe"}).save(taught)
    for model in (taught, accepted):
        with running(model, data) as port, client(port) as web:
            assert web.get("/model").json()["hash"] == sha256(model)
            assert web.post("/adapt").status_code == 202
            found = web.wait("ready", "failed")["findings"]
            assert (found["samples"], found["earlier_samples"]) == (20, 40)


def test_progress_moves_with_the_images_and_the_steps(photos: Path, target: list[Path], tmp_path: Path) -> None:
    """Of the process that adapts: once it runs, image by image where vectors are lost, step by step of the fit."""
    settings = usfda.ProcurementSettings(iterations=12, update_every=4, composites=200)
    config = usfda.Config(cache=None)
    usfda.procure(photos, backbone="pixels", method="usfda", settings=settings, config=config).save(
        tmp_path / "v.usfda"
    )
    task = {
        "model": str(tmp_path / "v.usfda"), "output": str(tmp_path / "new.usfda"), "images": [*map(str, target)],
        "first": 0, "cache": str(tmp_path), "threads": 1, "bytes": 0,
    }  # fmt: skip
    worker = subprocess.Popen(
        [sys.executable, "-m", "usfda.service.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(task) + "\n")
        worker.stdin.flush()  # and it stays open: the service is there
        told = [json.loads(line)["progress"] for line in worker.stdout]
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.1, 1.0)
    assert len({progress for progress in told if 0.3 < progress <= 0.5}) > 1, "the images"
    assert len({progress for progress in told if 0.5 < progress <= 0.9}) > 20, "the steps"


def test_metrics(vendor: Path, target: list[Path]) -> None:
    with running(vendor) as port, client(port) as web:
        records = web.send_images(target).json()["results"]
        web.post("/predict", files={"files": b"no image"})
        web.get("/made/up")
        unknown = sum(record["label"] == "unknown" for record in records)
        said = web.get("/metrics").text.splitlines()
        for line in [
            f'usfda_images_total{{answer="known"}} {len(records) - unknown:.1f}',
            f'usfda_images_total{{answer="unknown"}} {unknown:.1f}',
            'usfda_images_total{answer="unreadable"} 1.0',
            f"usfda_unknown_share {unknown / len(records)}",
            'usfda_requests_total{method="POST",route="/predict",status="200"} 1.0',
            'usfda_requests_total{method="POST",route="/predict",status="422"} 1.0',
            'usfda_requests_total{method="GET",route="other",status="404"} 1.0',
            'usfda_request_seconds_count{route="/predict"} 2.0',
            f'usfda_model_info{{sha256="{sha256(vendor)}"}} 1.0',
            "usfda_queue_images 0.0",
            f"usfda_kept_images {len(target):.1f}",
            'usfda_adaptation{usfda_adaptation="idle"} 1.0',
        ]:
            assert line in said, line


# Hostile clients


@pytest.mark.filterwarnings("ignore")  # of Pillow, about the images
def test_hostile_requests_do_no_harm(vendor: Path) -> None:
    with running(vendor, token=hostile.TOKEN, limits=Limits(body=2**20)) as port:
        attacker = hostile.Attacker(port, 2**20)
        for number in range(400):
            attacker.attack(number)
        assert attacker.statuses.total() == 400
        assert not [status for status in attacker.statuses if status.startswith("5")]
        assert {"200", "400", "401", "403", "404", "405", "413", "422"} <= set(attacker.statuses)
        with client(port, hostile.TOKEN) as web:
            assert web.get("/model").status_code == 200
        attacker.close()


def test_the_page_of_http_has_every_error(web: Client) -> None:
    page = (Path(__file__).parent.parent / "docs" / "http.md").read_text().split("\nErrors are ")[1]
    operations = [one for verbs in web.get("/openapi.json").json()["paths"].values() for one in verbs.values()]
    statuses = {status for one in operations for status in one["responses"] if status.startswith("4")}
    wrong = {str(web.get(path).status_code) for path in ("/nowhere", "/teach")}
    assert wrong == {"404", "405"}
    for status in statuses | wrong:
        assert status in page, f"docs/http.md does not tell of {status}"


def test_answers_are_as_the_service_describes_them(vendor: Path) -> None:
    pytest.importorskip("schemathesis")
    with running(vendor, token=hostile.TOKEN) as port:
        fine, said = hostile.schemathesis(port, 10, "examples,fuzzing")
        assert fine, said


# How it ends


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_it_finishes_what_it_has(vendor: Path, target: list[Path], sign: signal.Signals) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    body = head + target[0].read_bytes() + b"\r\n--b--\r\n"
    request = (
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with program(vendor) as started, socket.create_connection((HOST, started.port), PATIENCE) as raw:
        raw.sendall(request.encode() + body[:100])
        with client(started.port) as web:
            assert web.get("/healthz").status_code == 200  # by now the other request has begun
        started.process.send_signal(sign)
        with suppress(ConnectionRefusedError, ConnectionResetError):
            while started.process.poll() is None:
                socket.create_connection((HOST, started.port), PATIENCE).close()
        assert started.process.poll() is None
        raw.sendall(body[100:])
        answer = raw.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"label"' in answer
        assert started.wait() == 0
        begun, ended = started.said.splitlines()
        assert "token" in begun
        assert ended == "stopped"


def test_what_was_acknowledged_survives_kills(vendor: Path, tmp_path: Path) -> None:
    rng, data = random.Random(1), tmp_path / "data"
    photos = iter(write_grainy_photos(tmp_path / "photos", [0, 1, 4, 5], 100))
    acknowledged: list[str] = []
    models = {sha256(vendor)}  # one of which must serve

    def send(port: int) -> None:
        with suppress(httpx.TransportError), client(port) as web:
            for file in photos:
                assert web.send_images([file]).status_code == 200
                acknowledged.append(sha256(file))

    for moment in ("sending", "sending", "adapting", "accepting", "end"):
        with program(vendor, "--data", data) as started, client(started.port) as web:
            assert [web.get(f"/kept/{key}").status_code for key in acknowledged] == [200] * len(acknowledged)
            files = list((data / "images").iterdir())
            assert len(files) == web.get("/adapt").json()["kept"]
            assert [file.name.split("-")[1][:64] for file in files] == [sha256(file) for file in files]
            serving = web.get("/model").json()["hash"]
            assert serving in models
            if moment == "sending":
                sender = Thread(target=send, args=(started.port,))
                enough = len(acknowledged) + rng.randint(10, 20)
                sender.start()
                while len(acknowledged) < enough:
                    assert sender.is_alive()
                    time.sleep(0.005)
                time.sleep(rng.uniform(0, 0.02))
                started.end(signal.SIGKILL)
                sender.join()
            elif moment == "adapting":
                while len(acknowledged) < 20:  # a busy machine sends few before it is killed
                    file = next(photos)
                    assert web.send_images([file]).status_code == 200
                    acknowledged.append(sha256(file))
                assert web.post("/adapt").status_code == 202
                time.sleep(rng.uniform(0, 1))
            elif moment == "accepting":
                assert web.post("/adapt").status_code == 202
                assert web.wait("ready", "failed")["state"] == "ready"
                models = {serving, sha256(data / "models" / "candidate.usfda")}
                killer = Timer(rng.uniform(0, 0.1), started.process.kill)
                killer.start()
                with suppress(httpx.TransportError):
                    models = {web.post("/adapt/accept").json()["model"]}
                killer.join()
