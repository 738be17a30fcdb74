"""A configuration is a value: nothing is shared behind the caller's back, and nothing happens on import."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import blobs

import usfda
from usfda import Config, InputError, Model, ProcurementSettings, UsfdaSettings, adapt, load, procure
from usfda.config import available_cores, default_cache
from usfda.features.cache import cache_info

FEW = ProcurementSettings(iterations=12, update_every=5)


def test_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("USFDA_CACHE", str(tmp_path / "a"))
    config = Config()
    assert (config.threads, config.cache, config.device) == (available_cores(), tmp_path / "a", "auto")
    monkeypatch.setenv("USFDA_CACHE", str(tmp_path / "b"))
    assert config.cache == tmp_path / "a", "a value does not change with the environment"
    assert Config().cache == tmp_path / "b"
    monkeypatch.delenv("USFDA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert default_cache() == tmp_path / "c" / "usfda"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "d"))
    assert default_cache() == tmp_path / "d" / ".cache" / "usfda"
    for home in ("", "/"):
        monkeypatch.setenv("HOME", home)
        assert default_cache() is None, "a user without a home has no cache, least of all in /"
    assert list(tmp_path.iterdir()) == [], "nothing is made before it is needed"


def test_a_configuration_is_a_value(tmp_path: Path) -> None:
    one, two = Config(threads=1, cache=tmp_path), Config(threads=1, cache=tmp_path)
    assert one == two
    assert replace(one, threads=2) != one
    with pytest.raises(FrozenInstanceError):
        one.threads = 2  # type: ignore[misc]
    for threads in (0, -1):
        with pytest.raises(InputError, match=f"threads: at least 1, not {threads}"):
            Config(threads=threads)
    with pytest.raises(InputError, match="tpu"):
        Config(device="tpu")  # type: ignore[arg-type]


class Watch:
    """A progress that notes what it is told, and how many threads torch has meanwhile."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.threads: set[int] = set()

    @contextmanager
    def __call__(self, total: int, text: str, unit: str) -> Iterator[Callable[[int], None]]:
        if text:
            self.texts.append(text)
        yield lambda n: self.threads.add(torch.get_num_threads())


def test_two_configurations_do_not_disturb_each_other(photos: Path, new_photos: Path, tmp_path: Path) -> None:
    """Two works at once in one process, each with a cache, a progress and results of its own."""

    def work(name: str, source: Path) -> tuple[Watch, np.ndarray]:
        watch = Watch()
        config = Config(threads=1, cache=tmp_path / name, progress=watch)
        model = procure(source, backbone="pixels", method="mixture", config=config)
        return watch, model.predict_proba(source, config=config)

    before = dict(os.environ)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(work, name, source) for name, source in (("a", photos), ("b", new_photos))]
        (watch_a, p_a), (watch_b, p_b) = (job.result() for job in jobs)
    assert dict(os.environ) == before
    assert watch_a.texts == watch_b.texts == ["source features (for every method)"]
    counts = [sum(s["vectors"] for s in cache_info(tmp_path / name)["caches"].values()) for name in ("a", "b")]
    assert counts == [48, 40]
    assert np.array_equal(p_a, work("c", photos)[1])
    assert np.array_equal(p_b, work("d", new_photos)[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_torch_has_its_threads_back(vector_model: Model, threads: int) -> None:
    X, y = blobs([0, 1], 10)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        watch = Watch()
        config = Config(threads=threads, progress=watch)
        procure(X, y, method="all", settings=FEW, config=config)
        assert watch.threads == {threads}
        assert torch.get_num_threads() == 3
        adapt(vector_model, X, method="usfda", settings=UsfdaSettings(steps=2), config=config)
        assert watch.threads == {threads}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_torch_has_its_threads_back_after_an_error() -> None:
    X, y = blobs([0, 1], 10)
    before = torch.get_num_threads()

    @contextmanager
    def stop(total: int, text: str, unit: str) -> Iterator[Callable[[int], None]]:
        def advance(n: int) -> None:
            raise KeyboardInterrupt

        yield advance

    with pytest.raises(KeyboardInterrupt):
        procure(X, y, method="all", settings=FEW, config=Config(threads=before + 1, progress=stop))
    assert torch.get_num_threads() == before


def test_the_seeds_of_others_are_left_alone(vector_model: Model) -> None:
    """Neither torch's nor NumPy's own random numbers are drawn from or set."""
    X, y = blobs([0, 1], 10)
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 (that is what others may use)
    expected = torch.rand(1).item(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    procure(X, y, method="all", settings=FEW)
    adapt(vector_model, X, method="usfda", settings=UsfdaSettings(steps=2))
    adapt(vector_model, X)
    assert (torch.rand(1).item(), np.random.rand()) == expected  # noqa: NPY002


def test_threads_change_no_more_than_rounding(photos: Path) -> None:
    one, two = (
        procure(photos, backbone="pixels", method="mixture", config=Config(threads=n, cache=None)) for n in (1, 2)
    )
    for name, tensor in one.vendor.tensors().items():
        assert tensor == pytest.approx(two.vendor.tensors()[name], rel=1e-4, abs=1e-4)


OURS = ("OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS", "ORT_DISABLE_TELEMETRY")  # what conftest.py sets


def fresh(code: str, *args: str, **environment: str) -> Any:
    """What a new process prints as JSON."""
    plain = {name: value for name, value in os.environ.items() if name not in OURS}
    said = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, env=plain | environment
    )
    assert said.stderr == ""
    return json.loads(said.stdout)


IMPORT = """
import json, logging, os, sys, threading, warnings
names = ("torch", "onnxruntime", "onnx", "numpy", "sklearn", "scipy", "PIL", "rich", "typer", "safetensors")
def state():
    return [dict(os.environ), len(logging.getLogger().handlers), logging.getLogger("usfda").level,
            [str(f) for f in warnings.filters], threading.active_count()]
before = state()
import usfda
same, loaded = state() == before, [name for name in names if name in sys.modules]
public = [getattr(usfda, name).__name__ for name in usfda.__all__]
print(json.dumps([same, loaded, public, dict(os.environ) == before[0]]))
"""


def test_nothing_happens_on_import() -> None:
    """Fault: the import changed the environment of the process."""
    same, loaded, public, environment = fresh(IMPORT)
    assert same
    assert loaded == []
    assert public == usfda.__all__
    assert environment, "nor when all of it is loaded"


USE = """
import json, os, sys
before = dict(os.environ)
import numpy as np
import usfda
model = usfda.load(sys.argv[1])
labels = model.predict(np.load(sys.argv[2]))
names = ("torch", "onnxruntime", "onnx", "sklearn", "scipy", "PIL", "safetensors", "rich", "typer", "matplotlib")
print(json.dumps([labels.tolist(), [name for name in names if name in sys.modules], dict(os.environ) == before]))
"""


@pytest.mark.parametrize("method", ["mixture", "usfda"])
def test_a_model_decides_without_torch_and_without_a_place_to_write(
    vector_model: Model, tmp_path: Path, method: Any
) -> None:
    X, _ = blobs([0, 1, 7], 10, seed=1)
    settings = UsfdaSettings(steps=2) if method == "usfda" else None
    adapted = adapt(vector_model, X, method=method, settings=settings)
    adapted.save(tmp_path / "m.usfda")
    np.save(tmp_path / "X.npy", X)
    home = tmp_path / "home"
    home.mkdir()
    place = {"HOME": str(home), "USFDA_CACHE": str(home / "cache"), "TMPDIR": str(home)}
    labels, loaded, same = fresh(USE, str(tmp_path / "m.usfda"), str(tmp_path / "X.npy"), **place)
    assert labels == load(tmp_path / "m.usfda").predict(X).tolist()
    print("predict loads", loaded)
    assert not {"torch", "onnxruntime", "sklearn", "scipy", "rich", "typer", "matplotlib"} & set(loaded)
    assert same
    assert list(home.iterdir()) == []


RUN = """
import json, os, sys
before = dict(os.environ)
import numpy as np
from usfda.backbones.zoo import get_backbone
v = get_backbone("pixels").run(np.zeros((2, 16, 16, 3), np.uint8))
print(json.dumps([list(v.shape), "torch" in sys.modules, dict(os.environ) == before]))
"""


def test_onnxruntime_reports_nothing_to_anybody(tmp_path: Path) -> None:
    """Left to itself it writes an identifier of the machine, and reports the models that it runs."""
    shape, torch_loaded, same = fresh(RUN, HOME=str(tmp_path), TMPDIR=str(tmp_path), USFDA_CACHE=str(tmp_path / "c"))
    assert (shape, torch_loaded, same) == ([2, 256], False, True)
    assert list(tmp_path.iterdir()) == []


def test_the_public_names_are_listed() -> None:
    assert sorted(usfda.__all__) == usfda.__all__
    assert set(usfda.__all__) < set(dir(usfda))
    with pytest.raises(AttributeError, match="nothing"):
        _ = usfda.nothing
