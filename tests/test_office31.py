"""Real photographs: Office-31 amazon→dslr, 10/10/11, with the default backbone. Set USFDA_OFFICE31 to its folder."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from usfda import load
from usfda.cli import main
from usfda.data import read
from usfda.features import extract
from usfda.negatives import composite_features, plan
from usfda.procurement import split
from usfda.protocols import OFFICE31, office31
from usfda.runtime import runtime

ROOT = Path(os.environ.get("USFDA_OFFICE31", "office31-is-not-here"))
pytestmark = pytest.mark.skipif(not (ROOT / "amazon").is_dir(), reason="USFDA_OFFICE31 is not set")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("office31")


@pytest.fixture(autouse=True)
def shared_store(own_store, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cache", store / "cache")


@pytest.fixture(scope="module")
def vendor(store: Path) -> Path:
    source = ",".join(office31()[0])
    file = store / "vendor.usfda"
    args = ["procure", ROOT / "amazon", "--classes", source, "-o", file, "--cache", store / "cache", "--quiet"]
    assert main([*map(str, args), "--set", "composites=1500"]) == 0
    return file


def test_class_order_is_the_protocols() -> None:
    folders = {p.name for p in (ROOT / "amazon" / "images").iterdir()}
    assert set(OFFICE31) == folders
    assert list(OFFICE31[10:]) == sorted(OFFICE31[10:])
    assert [len(names) for names in office31()] == [20, 21]


def test_order_of_the_ssm_means(vendor: Path) -> None:
    """Eq. 1: negatives ≈ target-private < target-shared < source."""
    model = load(vendor)
    source, target = office31()
    labelled = read(ROOT / "amazon", classes=source, labelled=True)
    found, kept, keys = extract(labelled, model.backbone)
    train, held_out = split(np.unique(found.labels, return_inverse=True)[1], 0.1)
    made = plan(found.labels[train], 1500)
    paths = [labelled.paths[i] for i in kept]
    negatives = composite_features([paths[i] for i in train], [keys[i] for i in train], made, model.backbone)
    client = model.vectors(read(ROOT / "dslr", classes=target))
    shared = np.isin(read(ROOT / "dslr", classes=target).labels, source)
    ssm = model.decide(client.X).ssm
    mean = {
        "negatives": model.decide(negatives[:]).ssm.mean(),
        "target-private": ssm[~shared].mean(),
        "target-shared": ssm[shared].mean(),
        "source": model.decide(found.X[held_out]).ssm.mean(),
    }
    assert max(mean["negatives"], mean["target-private"]) < mean["target-shared"] < mean["source"], mean


def test_adaptation_pays(vendor: Path, store: Path) -> None:
    target = ",".join(office31()[1])
    client = store / "client.usfda"
    common = ["--classes", target, "--cache", str(store / "cache"), "--quiet"]
    assert main(["adapt", str(vendor), str(ROOT / "dslr"), "-o", str(client), *common]) == 0
    results = {}
    for model in (vendor, client):
        file = store / f"{model.stem}.json"
        assert main(["evaluate", str(model), str(ROOT / "dslr"), "--json", str(file), *common]) == 0
        results[model] = json.loads(file.read_text())
    assert results[client]["h_score"] > results[vendor]["h_score"] + 30
    assert results[client]["h_score"] > 85
    low, high = load(client).card["deployment"]["check"]["unknown_interval"]
    private = 100 * sum(c["samples"] for name, c in results[client]["per_class"].items() if name not in office31()[0])
    assert low < private / results[client]["samples"] < high
    assert results[client]["samples"] == sum(c["samples"] for c in results[client]["per_class"].values())
