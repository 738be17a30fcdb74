"""Small real data for all tests: textured images in class folders, shifted blobs of vectors, a cache of one's own."""

from __future__ import annotations

import importlib.util
import json
import os
import sys

# Before NumPy and torch are loaded: threads that spin while they wait make these small matrices many times slower as
# soon as another process wants a core.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # where a test loads onnxruntime before the package does

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import settings
from PIL import Image

from usfda import Config, Model, ProcurementSettings, procure
from usfda.methods.mixture.learned import load_decision

pytest_plugins = ["browser"]  # fixtures of a real browser

settings.register_profile("patient", deadline=None)  # a busy machine is no fault of what is tested
settings.load_profile("patient")

QUICK = ProcurementSettings(iterations=60, update_every=20, composites=200)

# Modules that run whole commands, servers, browsers or data sets: what they test is slower than its parts.
INTEGRATION = {
    "test_baselines", "test_cli", "test_compare", "test_demo", "test_ecosystem", "test_examples", "test_export",
    "test_extract", "test_faults", "test_fuzz", "test_graph", "test_images", "test_modelfile", "test_newcomer",
    "test_office31", "test_package", "test_pages", "test_procurement", "test_ray", "test_report", "test_reproduce",
    "test_review", "test_review_page", "test_service", "test_service_page", "test_signing",
    "test_teaching", "test_urls",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these modules."""
    for item in items:
        if item.path.stem in INTEGRATION:
            item.add_marker("integration")


class SkipWithoutTorch:
    """Skips a test, or a module of tests, as soon as it imports torch, be it through what it tests.

    torch is not there for every Python on which all else can be tested.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            pytest.skip("torch is not installed", allow_module_level=True)


if importlib.util.find_spec("torch") is None:
    sys.meta_path.append(SkipWithoutTorch)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a feature cache of its own: the default one is never touched."""
    folder = tmp_path_factory.mktemp("store")
    monkeypatch.setenv("USFDA_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def pessimist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of the learned decision that expect the class means to be better than anything adapted."""
    decision = load_decision()
    tensors = {name: value.astype(np.float32) for name, value in decision.tensors.items()}
    tensors["expected.out.bias"] = tensors["expected.out.bias"] + np.asarray([0, 0, -30, 30], np.float32)
    file = tmp_path_factory.mktemp("weights") / "pessimist.safetensors"
    safetensors.numpy.save_file(tensors, file, {"record": json.dumps(dict(decision.record))})
    return file


@pytest.fixture
def config(cache: Path) -> Config:
    return Config(cache=cache)


def texture(kind: int, rng: np.random.Generator, side: int = 24, invert: bool = False) -> np.ndarray:
    """Stripes across, stripes down, a disc, a cross, …: classes that pixels can tell apart."""
    y, x = np.mgrid[:side, :side] / side + rng.uniform(-0.04, 0.04, (2, 1, 1))
    shapes = [
        np.sin(12 * x) > 0,
        np.sin(12 * y) > 0,
        (x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.09,
        (abs(x - 0.5) < 0.12) | (abs(y - 0.5) < 0.12),
        x + y < 1,
        x > y,
    ]
    grey = np.where(shapes[kind], 200, 60) + rng.normal(0, 12, (side, side))
    if invert:
        grey = 0.7 * grey + 40
    return np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, 2)


def write_photos(folder: Path, kinds: list[int], each: int, seed: int = 0, invert: bool = False) -> Path:
    rng = np.random.default_rng(seed)
    for kind in kinds:
        (folder / f"kind{kind}").mkdir(parents=True)
        for i in range(each):
            Image.fromarray(texture(kind, rng, invert=invert)).save(folder / f"kind{kind}" / f"{i:03d}.png")
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source: kinds 0–3."""
    return write_photos(tmp_path_factory.mktemp("data") / "source", [0, 1, 2, 3], 12)


@pytest.fixture(scope="session")
def new_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Target: kinds 0 and 1 in another light, kinds 4 and 5 new."""
    return write_photos(tmp_path_factory.mktemp("data") / "target", [0, 1, 4, 5], 10, seed=1, invert=True)


def blobs(
    classes: list[int], each: int, shift: float = 0.0, seed: int = 0, d: int = 32
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes around fixed centres; ``shift`` moves the whole domain."""
    centres = np.random.default_rng(99).normal(0, 3, (10, d))
    rng = np.random.default_rng(seed)
    y = np.repeat(classes, each)
    X = centres[y] + rng.normal(0, 1, (len(y), d)) + shift
    return X.astype(np.float32), np.asarray([f"c{c}" for c in y])


@pytest.fixture(scope="session")
def vector_model() -> Model:
    X, y = blobs([0, 1, 2, 3, 4], 30)
    return procure(X, y, method="all", settings=ProcurementSettings(iterations=200, update_every=50))
