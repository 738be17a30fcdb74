"""Extraction on a real Ray cluster on this machine, with workers, drivers and clusters that are really killed."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from conftest import write_photos
from PIL import Image

from usfda import Config, Features, InputError, Model, Samples, load, procure
from usfda.backbones.zoo import get_backbone
from usfda.cli.main import main
from usfda.data.reading import read
from usfda.features.cache import FeatureCache, cache_info
from usfda.features.cluster import Ray
from usfda.features.engines import Threads
from usfda.features.extract import Extractor
from usfda.features.jobs import ImageJob
from usfda.methods.usfda.negatives import plan
from usfda.stages.procure import composite_features

PATIENCE = 300  # seconds for what takes moments on a machine that is not busy


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster with two workers, which this process started."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, [before.get("PYTHONPATH")])])
    ray = Ray(2, None).connect()
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def on_ray(cluster: str, cache: Path) -> Config:
    return Config(threads=2, cache=cache, engine="ray")


@pytest.fixture(scope="module")
def vendor(photos: Path) -> Model:
    return procure(photos, backbone="pixels", method="mixture", config=Config(cache=None))


def features(source: Any, config: Config) -> Features:
    found = read(source)
    assert isinstance(found, Samples)
    return Extractor.make(get_backbone("pixels"), config).features(found)


def vectors_in(cache: Path) -> int:
    return sum(store["vectors"] for store in cache_info(cache)["caches"].values())


def rows_in(cache: Path) -> int:
    """Rows of the files of vectors: one that was appended twice counts twice."""
    return sum(file.stat().st_size for file in cache.glob("features/*/vectors-*.bin")) // (4 * 256)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.03)


def test_the_same_vectors_and_the_same_complaints(
    on_ray: Config, photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "good").symlink_to(photos)
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "copy.png").write_bytes((photos / "kind0" / "000.png").read_bytes())
    with caplog.at_level(logging.WARNING, "usfda"):
        here = features(tmp_path, Config(cache=None))
        said = caplog.messages
        caplog.clear()
        for config in (on_ray, on_ray, replace(on_ray, cache=None)):  # empty cache, full store, none
            there = features(tmp_path, config)
            assert np.array_equal(there.X[:], here.X[:]), "bit for bit"
            assert (there.keys, there.paths) == (here.keys, here.paths)
    assert len(said) == 1
    assert "1 of 50" in said[0]
    assert caplog.messages == said * 3
    assert on_ray.cache is not None
    assert (vectors_in(on_ray.cache), rows_in(on_ray.cache)) == (48, 48)


def test_what_the_store_has_lost_is_made_again(on_ray: Config, photos: Path) -> None:
    """Its keys are known to the workers, but their vectors are no longer sound."""
    expected = features(photos, on_ray).X[:]
    assert on_ray.cache is not None
    (file,) = on_ray.cache.glob("features/*/vectors-1.bin")
    file.write_bytes(bytes(1000) + file.read_bytes()[1000:])
    assert np.array_equal(features(photos, on_ray).X[:], expected)


def test_images_in_memory_go_along(on_ray: Config, photos: Path) -> None:
    images = [Image.open(path) for path in sorted((photos / "kind2").iterdir())]
    assert np.array_equal(features(images, on_ray).X[:], features(images, Config(cache=None)).X[:])


def test_what_a_worker_raises_arrives(on_ray: Config, photos: Path, cluster: str) -> None:
    with pytest.raises(KeyError, match="a bug"):
        list(Ray(2, None).run(BrokenJob(get_backbone("pixels")), [photos], [0], None))


@dataclass(frozen=True)
class BrokenJob(ImageJob):
    """A preparation with a mistake in it."""

    def load(self, item: Any) -> Any:
        raise KeyError("a bug")


def test_composites(on_ray: Config, photos: Path) -> None:
    m = get_backbone("pixels")
    found = features(photos, Config(cache=None))
    assert found.paths is not None
    labelled = replace(found, labels=np.asarray([Path(str(path)).parent.name for path in found.paths]))
    assert labelled.labels is not None
    made = plan(labelled.labels, 200)
    here, there = (
        composite_features(labelled, made, Extractor.make(m, config)) for config in (Config(cache=None), on_ray)
    )
    assert np.array_equal(there[:], here[:])


def test_predictions_are_those_of_one_machine(
    cluster: str, vendor: Model, new_photos: Path, tmp_path: Path, cache: Path
) -> None:
    """The same rows in the same order, from `procure` to `predict`, with one cluster by its address."""
    vendor.save(tmp_path / "vendor.usfda")
    tables = []
    for engine in (["--engine", "threads"], ["--engine", "ray", "--address", cluster]):
        client, out = tmp_path / "client.usfda", tmp_path / "out.parquet"
        call = ["--quiet", "--cache", str(cache / engine[1])]
        assert main([*call, "adapt", str(tmp_path / "vendor.usfda"), str(new_photos), "-o", str(client), *engine]) == 0
        assert main([*call, "predict", str(client), str(new_photos), "-o", str(out), *engine]) == 0
        tables.append(parquet.read_table(out))
        assert vectors_in(cache / engine[1]) == 40
    assert tables[0].num_rows == 40
    assert tables[1].equals(tables[0])


@dataclass(frozen=True)
class SlowJob(ImageJob):
    """Leaves a note of every image that a process prepares, and takes its time."""

    notes: Path = Path()

    def load(self, item: Any) -> Any:
        key, prepare = super().load(item)

        def slowly() -> np.ndarray:
            with (self.notes / str(os.getpid())).open("a") as file:
                file.write(f"{item}\n")
            time.sleep(0.01)
            return prepare()

        return key, slowly


def test_a_killed_worker_is_replaced(cluster: str, tmp_path: Path, cache: Path) -> None:
    """Nothing is lost, nothing is stored twice, and the vectors are those of threads, bit for bit."""
    source = read(write_photos(tmp_path / "many", [0, 1, 2], 150))
    assert isinstance(source, Samples)
    m, notes = get_backbone("pixels"), tmp_path / "notes"
    notes.mkdir()
    store = FeatureCache(cache / "features" / "killed", m.dim)
    killed: set[str] = set()
    got: list[int] = []
    for done in Ray(2, None).run(SlowJob(m, notes), source.paths, range(len(source)), store):
        store.append(done.new, done.X)
        got += done.keys
        if not killed:
            wait_for(lambda: len(list(notes.iterdir())) == 2)  # both have begun
            killed = {file.name for file in notes.iterdir()}
            os.kill(int(min(killed)), signal.SIGKILL)
    assert got == list(range(450))
    assert {file.name for file in notes.iterdir()} > killed, "another process went on"
    assert (vectors_in(cache), rows_in(cache)) == (450, 450)
    expected = features(tmp_path / "many", Config(cache=None))
    rows, vectors = store.find(list(expected.keys or ()))
    assert np.array_equal(vectors[rows], expected.X[:])


def test_a_killed_run_goes_on(cluster: str, tmp_path: Path, cache: Path) -> None:
    """What was stored when the whole command was killed is not computed again; the cluster is left alone."""
    source = write_photos(tmp_path / "source", [0, 1, 2], 500)
    call = [sys.executable, "-m", "usfda", "--verbose", "--cache", str(cache), "procure", source.name]
    call += ["--for", "mixture", "--backbone", "pixels", "-o", str(tmp_path / "m.usfda")]
    call += ["--engine", "ray", "--address", cluster]
    process = subprocess.Popen(call, stderr=subprocess.DEVNULL, cwd=tmp_path)  # the workers are in another folder
    wait_for(lambda: vectors_in(cache) >= 64 or process.poll() is not None)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    stored = vectors_in(cache)
    assert 64 <= stored < 1500, "killed in the middle of extraction"
    again = subprocess.run(call, capture_output=True, text=True, check=True, timeout=PATIENCE, cwd=tmp_path)
    assert f"{1500 - stored} of 1500 features were computed" in again.stderr
    assert (vectors_in(cache), rows_in(cache)) == (1500, 1500)
    assert len(load(tmp_path / "m.usfda").classes_) == 3


def processes_with(mark: str) -> list[int]:
    """Processes with a text in their environment, which children inherit."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:  # ended just now, or another user's
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_a_cluster_of_our_own_ends_with_ctrl_c(
    vendor: Model, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    vendor.save(tmp_path / "vendor.usfda")
    source = write_photos(tmp_path / "source", [0, 1, 2], 700)
    call = [sys.executable, "-m", "usfda", "--threads", "1", "predict", str(tmp_path / "vendor.usfda"), str(source)]
    call += ["--engine", "ray", "-o", str(tmp_path / "out.csv")]
    with subprocess.Popen(call, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for(lambda: vectors_in(cache) >= 64 or process.poll() is not None)
        assert len(processes_with(str(cache))) > 3, "a cluster"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert (out, "Traceback" in err, "goes on from there" in err) == ("", False, True)
    assert not (tmp_path / "out.csv").exists()
    wait_for(lambda: not processes_with(str(cache)))


def test_what_is_asked_for_wrongly(capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path) -> None:
    call = ["procure", str(photos), "-o", str(tmp_path / "m.usfda")]
    assert main([*call, "--address", "127.0.0.1:6379"]) == 2
    assert "--engine" in capsys.readouterr().err
    assert main([*call, "--engine", "spark"]) == 2
    assert "spark" in capsys.readouterr().err
    without = "import sys; sys.modules['ray'] = None; from usfda.cli.main import main; sys.exit(main(sys.argv[1:]))"
    ran = subprocess.run(
        [sys.executable, "-c", without, *call, "--backbone", "pixels", "--engine", "ray"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "usfda[ray]" in ran.stderr


def test_without_its_token_a_cluster_cannot_be_used(cluster: str, photos: Path, tmp_path: Path) -> None:
    """A cluster that we start has one, though nobody asked for it."""
    call = [sys.executable, "-m", "usfda", "procure", str(photos), "-o", str(tmp_path / "m.usfda")]
    call += ["--backbone", "pixels", "--engine", "ray", "--address", cluster]
    other = os.environ | {
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_BACKEND_LOG_LEVEL": "warning",
        "RAY_NUM_REDIS_GET_RETRIES": "2",  # which is about as many seconds
    }
    ran = subprocess.run(call, env=other, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.returncode == 2
    assert "Authentication token is missing or incorrect" in ran.stderr


def test_an_engine_gives_batches_in_order(photos: Path) -> None:
    source = read(photos)
    assert isinstance(source, Samples)
    for done in Threads(4).run(ImageJob(get_backbone("pixels")), source.paths, range(40), None):
        assert len(done.new) == len(done.keys)
    with pytest.raises(InputError, match="--engine"):
        Config(address="auto")
