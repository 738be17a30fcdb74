"""At home among other tools: scikit-learn, Parquet, trackers, model hubs, shells."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import blobs
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from usfda import InputError, Model, UsfdaClassifier, adapt, get_tracker, load
from usfda.cli.main import main


@parametrize_with_checks([UsfdaClassifier()])  # type: ignore[untyped-decorator]
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(("labels", "unknown"), [(np.arange(5), -1), (np.asarray(list("vwxyz")), "new")])
def test_the_estimator_adapts_and_keeps_the_type_of_labels(labels: np.ndarray, unknown: Any) -> None:
    X, y = blobs([0, 1, 2, 3, 4], 30)
    target, truth = blobs([0, 1, 7, 8], 30, shift=0.5, seed=1)
    names = {f"c{i}": label for i, label in enumerate(labels)}
    classifier = UsfdaClassifier(unknown_label=unknown).fit(X, [names[name] for name in y.tolist()])
    assert classifier.classes_.dtype == labels.dtype
    assert unknown not in classifier.predict(target).tolist()  # before it is adapted it knows no unknown
    predicted = classifier.adapt(target).predict(target)
    expected = np.asarray([names.get(name, unknown) for name in truth.tolist()])
    assert predicted.dtype.kind == labels.dtype.kind
    assert np.mean(predicted == expected) > 0.9
    assert classifier.predict_proba(target).shape == (len(target), 5)
    known = np.isin(truth, ["c0", "c1"])
    assert classifier.known_score(target)[known].mean() > 0.8 > 0.2 > classifier.known_score(target)[~known].mean()
    never = clone(classifier).set_params(strictness=0.0).fit(X, [names[name] for name in y.tolist()]).adapt(target)
    assert unknown not in never.predict(target).tolist()


@pytest.mark.parametrize(
    ("labels", "given", "unknown"),
    [
        (np.arange(5), None, -1),
        (np.asarray(list("vwxyz")), None, "unknown"),
        (np.asarray(list("vwxyz"), dtype=object), None, "unknown"),
        (np.asarray(list("vwxyz")), -1, -1),
        (np.arange(5), "new", "new"),
    ],
)
def test_unknown_can_be_compared_with_what_was_asked_for(labels: np.ndarray, given: Any, unknown: Any) -> None:
    """Fault: with names for classes it was the text '-1', which equals no number."""
    X, y = blobs([0, 1, 2, 3, 4], 30)
    target, truth = blobs([0, 1, 7, 8], 30, shift=0.5, seed=1)
    names = [labels[int(name[1])] for name in y.tolist()]
    predicted = UsfdaClassifier(unknown_label=given).fit(X, names).adapt(target).predict(target)
    assert np.mean((predicted == unknown) == np.isin(truth, ["c7", "c8"])) > 0.9
    assert np.mean(predicted[truth == "c0"] == labels[0]) > 0.9


def test_the_estimator_says_what_it_takes(photos: Path) -> None:
    """Fault: paths could not be converted to float."""
    paths = sorted(photos.rglob("*.png"))
    for places in (photos, str(photos), paths, [str(path) for path in paths], np.asarray([str(p) for p in paths])):
        with pytest.raises(InputError, match="array"):
            UsfdaClassifier().fit(places, [path.parent.name for path in paths])
    X, y = blobs([0, 1], 30)
    with pytest.raises(InputError, match="c1"):
        UsfdaClassifier(unknown_label="c1").fit(X, y).adapt(X)


@pytest.fixture
def adapted(vector_model: Model) -> Model:
    return adapt(vector_model, blobs([0, 1, 7, 8], 30, shift=0.5, seed=1)[0])


def test_predictions_as_parquet(adapted: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    X, _ = blobs([0, 1, 7, 8], 30, shift=0.5, seed=1)
    np.savez(tmp_path / "f.npz", X=X)
    adapted.save(tmp_path / "m.usfda")
    call = ["predict", str(tmp_path / "m.usfda"), str(tmp_path / "f.npz")]
    assert main([*call, "-o", str(tmp_path / "labels.parquet")]) == 0
    rows = parquet.read_table(tmp_path / "labels.parquet").to_pylist()
    for row, record in zip(rows, adapted.predictions(X), strict=True):
        best = [(of["class"], of["share"]) for of in row.pop("top")]
        assert row == {k: getattr(record, k) for k in ("path", "label", "score", "ssm", "cluster")} | {"error": None}
        assert best == record.top
    assert main([*call, "--format", "parquet"]) == 2
    assert "parquet" in capsys.readouterr().err


def test_a_folder_that_a_hub_can_hold(adapted: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapted.save(f"{tmp_path}/hub/")
    assert sorted(file.name for file in (tmp_path / "hub").iterdir()) == ["README.md", "model.usfda"]
    X, _ = blobs([0, 1, 7, 8], 5, shift=0.5, seed=2)
    assert np.array_equal(load(tmp_path / "hub").predict(X), adapted.predict(X))
    page = (tmp_path / "hub" / "README.md").read_text()
    front = page.split("---\n")[1]
    assert 'library_name: "usfda"' in front
    assert "- c0: " in page
    assert main(["inspect", str(tmp_path / "hub"), "--card", str(tmp_path / "card.md")]) == 0
    assert (tmp_path / "card.md").read_text() == page
    assert main(["inspect", str(tmp_path / "hub")]) == 0
    assert "adapted" in capsys.readouterr().out


def test_no_name_can_change_the_page(vector_model: Model) -> None:
    card = copy.deepcopy(vector_model.card)
    card["procurement"]["classes"] = {"<script>*a*|[b](c)": 10}
    other = Model(vector_model.source_classes, vector_model.vendor, vector_model.head, None, card)
    line = next(line for line in other.page().splitlines() if "script" in line)
    assert line == r"- \<script\>\*a\*\|\[b\]\(c\): 10 source images"


def test_tensorboard(adapted: Model, vector_model: Model, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name, model in (("adapted", adapted), ("procured", vector_model)):
        get_tracker(f"tensorboard:{tmp_path / name}")(model)
    read = EventAccumulator(str(tmp_path / "adapted")).Reload()
    share = adapted.deployment["unknown_share"]
    assert [e.value for e in read.Scalars("deployment/unknown_share")] == pytest.approx([share])
    read = EventAccumulator(str(tmp_path / "procured")).Reload()
    history = vector_model.card["procurement"]["history"]
    name, values = next(iter(history.items()))
    assert [e.value for e in read.Scalars(f"procurement/{name}")] == pytest.approx(values, rel=1e-5)


def test_mlflow(adapted: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow  # not skipped where it cannot be imported: an mlflow too old for its surroundings is a fault

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    get_tracker("mlflow")(adapted)
    (run,) = mlflow.MlflowClient().search_runs(["0"])
    assert run.data.params["stage"] == "deployment"
    assert run.data.metrics["deployment/unknown_share"] == pytest.approx(adapted.deployment["unknown_share"])


def test_a_tracker_that_is_none_is_found_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="wandb"):
        get_tracker("wandb")
    call = ["procure", str(tmp_path), "-o", str(tmp_path / "m.usfda"), "--track", "tensorboard"]
    assert main(call) == 2
    assert "tensorboard" in capsys.readouterr().err


def test_shell_completion() -> None:
    asked = {"_USFDA_COMPLETE": "complete_bash", "COMP_WORDS": "usfda pre", "COMP_CWORD": "1"}
    program = Path(sys.executable).with_name("usfda")
    done = subprocess.run([program], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["predict"]
