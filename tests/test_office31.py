"""Real photographs: Office-31 amazon→dslr, 10/10/11, with the default backbone. Set USFDA_OFFICE31 to its folder."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from usfda import Config, Samples, load
from usfda.cli.main import main
from usfda.data.reading import read
from usfda.experiments.protocols import DATA_SETS, OFFICE31
from usfda.methods.settings import hold_out
from usfda.methods.usfda.negatives import plan
from usfda.stages.procure import composite_features

ROOT = Path(os.environ.get("USFDA_OFFICE31", "office31-is-not-here"))
pytestmark = pytest.mark.skipif(not (ROOT / "amazon").is_dir(), reason="USFDA_OFFICE31 is not set")
PROTOCOL = DATA_SETS["office31"].protocol


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("office31")


@pytest.fixture(scope="module")
def vendor(place: Path) -> Path:
    file = place / "vendor.usfda"
    args = ["procure", ROOT / "amazon", "--for", "all", "--classes", ",".join(PROTOCOL.source), "-o", file]
    assert main([*map(str, args), "--cache", str(place / "cache"), "--quiet", "--set", "composites=1500"]) == 0
    return file


def test_class_order_is_the_protocols() -> None:
    folders = {p.name for p in (ROOT / "amazon" / "images").iterdir()}
    assert set(OFFICE31) == folders
    assert list(OFFICE31[10:]) == sorted(OFFICE31[10:])
    assert (len(PROTOCOL.source), len(PROTOCOL.target)) == (20, 21)


def test_order_of_the_ssm_means(vendor: Path, place: Path) -> None:
    """Eq. 1: negatives ≈ target-private < target-shared < source."""
    model = load(vendor)
    extractor = model.extractor(Config(cache=place / "cache"))
    source, target = (
        extractor.features(samples).labelled()
        for samples in (
            read(ROOT / "amazon", classes=PROTOCOL.source, labelled=True),
            read(ROOT / "dslr", classes=PROTOCOL.target),
        )
        if isinstance(samples, Samples)
    )
    train, held_out = hold_out(source.y, 0.1)
    made = plan(source.labels[train], 1500)
    negatives = composite_features(source[train], made, extractor)
    shared = np.isin(target.labels, PROTOCOL.source)
    parts = {
        "negatives": negatives[:],
        "target-private": target.X[np.flatnonzero(~shared)],
        "target-shared": target.X[np.flatnonzero(shared)],
        "source": source.X[held_out],
    }
    mean = {}
    for name, X in parts.items():
        ssm = model.ssm(X)
        assert ssm is not None
        mean[name] = float(ssm.mean())
    assert max(mean["negatives"], mean["target-private"]) < mean["target-shared"] < mean["source"], mean


def test_adaptation_pays(vendor: Path, place: Path) -> None:
    client = place / "client.usfda"
    common = ["--classes", ",".join(PROTOCOL.target), "--cache", str(place / "cache"), "--quiet"]
    assert main(["adapt", str(vendor), str(ROOT / "dslr"), "-o", str(client), *common]) == 0
    results = {}
    for model in (vendor, client):
        file = place / f"{model.stem}.json"
        assert main(["evaluate", str(model), str(ROOT / "dslr"), "--json", str(file), *common]) == 0
        results[model] = json.loads(file.read_text())
    assert results[client]["h_score"] > results[vendor]["h_score"] + 30
    assert results[client]["h_score"] > 85
    low, high = load(client).deployment["check"]["unknown_interval"]
    private = 100 * sum(c["samples"] for n, c in results[client]["per_class"].items() if n not in PROTOCOL.source)
    assert low < private / results[client]["samples"] < high
    assert results[client]["samples"] == sum(c["samples"] for c in results[client]["per_class"].values())
