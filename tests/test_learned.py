"""The learned decision: its statistics, its weights, the backbone's classifier, and how the weights are trained."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
from conftest import blobs
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from scipy.special import softmax

from usfda import Features, InputError, Model, adapt, load, procure
from usfda.backbones.zoo import get_backbone
from usfda.methods.mixture import classifier, fit, statistics
from usfda.methods.mixture.class_statistics import fit_class_statistics
from usfda.methods.mixture.learned import LearnedDecision, LearnedSplitter, aggregates, load_decision
from usfda.methods.mixture.neighbours import NeighbourGraph
from usfda.methods.mixture.target import TargetView
from usfda.methods.settings import MixtureSettings
from usfda.methods.vendor import ClassifierStatistics, Vendor, signed_root


def view_of(X: np.ndarray, target: np.ndarray, y: np.ndarray, known: ClassifierStatistics | None = None) -> TargetView:
    """A target as the mixture sees it."""
    class_statistics = fit_class_statistics(X, y, y.max() + 1)
    x, one = signed_root(target), np.ones(len(target))
    return fit.view_of(
        Vendor(None, class_statistics, known), fit.WeightedSamples(x, one, one), y.max() + 1, MixtureSettings(), 0
    )


def source_and_target(shift: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, names = blobs([0, 1, 2, 3, 4], 30)
    return X, np.unique(names, return_inverse=True)[1], blobs([0, 1, 2, 7, 8], 30, shift=shift, seed=1)[0]


def random_layer(d: int, things: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(things, d)).astype(np.float32), rng.normal(size=things).astype(np.float32)


def test_every_statistic_has_a_meaning() -> None:
    X, y, target = source_and_target()
    layer = random_layer(X.shape[1])
    known = classifier.fit_classifier(*layer, X, y, 5)
    view = view_of(X, target, y, known)
    samples, whole = statistics.compute(view)
    assert {*samples, *whole} == set(statistics.MEANING)
    more, rest = classifier.compute(view)
    assert {*more, *rest} == set(classifier.MEANING)
    for values in (*samples.values(), *more.values()):
        assert values.shape == (len(target),)
        assert np.isfinite(values).all()
    assert np.isfinite([*whole.values(), *rest.values()]).all()
    record = load_decision().record
    assert {*record["samples"], *record["whole"]} == {*statistics.MEANING, *classifier.MEANING}


def test_statistics_do_not_depend_on_the_scale() -> None:
    X, y, target = source_and_target()
    one, other = (statistics.compute(view_of(k * X, k * target, y)) for k in (1.0, 9.0))
    for name in one[0]:
        assert other[0][name] == pytest.approx(one[0][name], abs=2e-3, rel=2e-3), name
    assert other[1] == pytest.approx(one[1], abs=2e-3, rel=2e-3)


def test_statistics_of_two_samples_of_two_classes_are_finite() -> None:
    X, names = blobs([0, 1], 3)
    view = view_of(X, X[::5], np.unique(names, return_inverse=True)[1])
    samples, whole = statistics.compute(view)
    assert np.isfinite([*whole.values()]).all()
    assert all(np.isfinite(values).all() for values in samples.values())


def test_the_classifiers_statistics_by_hand() -> None:
    X, y, target = source_and_target()
    weight, bias = random_layer(X.shape[1])
    known = classifier.fit_classifier(weight, bias, X, y, 5)
    logits = X @ weight.T + bias
    share = np.stack([softmax(logits, 1)[y == c].mean(0) for c in range(5)])
    assert known.share == pytest.approx(share, abs=1e-5)
    assert known.mean == pytest.approx(np.stack([logits[y == c].mean(0) for c in range(5)]).mean(0), abs=1e-4)
    mass = np.minimum(share.max(0) / 0.05, 1)
    assert known.level[0, 0] == pytest.approx((softmax(logits, 1) @ mass).mean(), abs=1e-4)
    view = view_of(X, target, y, known)
    found, _ = classifier.compute(view)
    of_target = softmax(target @ weight.T + bias, 1)
    narrow = view.neighbours.smooth(of_target @ np.minimum(share.max(0) / 0.2, 1))
    assert found["raw_mass_narrow"] == pytest.approx(narrow, abs=1e-4)
    of_class = (of_target * np.minimum(share[view.best] / 0.05, 1)).sum(1)
    assert found["raw_class"] == pytest.approx(of_class, abs=1e-4)


def test_more_evidence_of_a_class_never_hurts() -> None:
    """Shipped weights: of two targets the one whose samples lie nearer to the classes has more known samples."""
    X, y, _ = source_and_target()
    splitter = LearnedSplitter(load_decision())
    shares = []
    for kinds in ([0, 1, 2, 3, 4], [0, 1, 2, 7, 8], [6, 7, 8, 9]):
        target = blobs(kinds, 30, shift=0.3, seed=1)[0]
        shares.append(np.mean(splitter(view_of(X, target, y)).log_odds >= 0))
    assert shares[0] > shares[1] > shares[2]
    assert shares[0] > 0.9
    assert shares[2] < 0.3


def test_the_expected_figures_and_the_interval(vector_model: Model) -> None:
    for kinds, unknown in (([0, 1, 2, 3, 4], 0), ([0, 1, 2, 7, 8, 9], 50)):
        check = adapt(vector_model, blobs(kinds, 40, shift=0.3, seed=1)[0]).deployment["check"]
        low, high = check["unknown_interval"]
        assert 0 <= low <= check["unknown_estimate"] <= high <= 100
        assert low - 5 <= unknown <= high + 5
        expected = check["expected"]
        assert expected["source_network"] is not None
        assert all(0 <= v <= 100 for v in (expected["adapted"], expected["class_means"], expected["source_network"]))


def test_the_verdict_does_not_depend_on_the_vendors_networks() -> None:
    X, names = blobs([0, 1, 2, 3, 4], 30)
    target = blobs([0, 1, 2, 7, 8], 30, shift=0.5, seed=1)[0]
    small = {"iterations": 20, "update_every": 10}
    without, both = (procure(X, names, method=method, settings=small) for method in ("mixture", "all"))
    checks = [adapt(model, target).deployment["check"] for model in (without, both)]
    of_networks = [check["expected"]["source_network"] for check in checks]
    assert of_networks[0] is None
    assert of_networks[1] is not None
    checks[1]["expected"]["source_network"] = None
    assert checks[0] == checks[1]


def test_unfamiliar_statistics_are_left_to_the_simple_rule(vector_model: Model, tmp_path: Path) -> None:
    """Weights whose training saw nothing of the kind."""
    decision = load_decision()
    tensors = {name: value.astype(np.float32) for name, value in decision.tensors.items()}
    tensors["whole.low"], tensors["whole.high"] = tensors["whole.high"] + 1, tensors["whole.high"] + 2
    file = tmp_path / "elsewhere.safetensors"
    safetensors.numpy.save_file(tensors, file, {"record": json.dumps(dict(decision.record))})
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=0.3, seed=1)
    cards = [adapt(vector_model, X, settings=given).deployment["check"] for given in ({}, {"weights": str(file)})]
    assert [card["decision"] for card in cards] == ["learned", "simple"]


@pytest.mark.parametrize("content", [None, b"", b"no weights"])
def test_weights_that_are_none(vector_model: Model, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "w.safetensors"
    if content is not None:
        file.write_bytes(content)
    X, _ = blobs([0, 1], 10)
    for name in (str(file), "without-everything"):
        with pytest.raises(InputError, match="without-office"):
            adapt(vector_model, X, settings={"weights": name})


def test_all_shipped_weights_are_small_and_say_what_they_were_trained_on() -> None:
    place = Path(statistics.__file__).with_name("weights")
    names = {file.stem for file in place.iterdir()}
    assert {"all", "without-office", "without-digits"} <= names
    for name in names:
        record = load_decision(name).record
        left_out = name.removeprefix("without-") if name != "all" else None
        assert (left_out in record["left_out"]) if left_out else not record["left_out"]
        assert not set(record["families"]) & set(record["left_out"])
        assert (place / f"{name}.safetensors").stat().st_size < 200_000
    assert len(load_decision().record["families"]) >= 12


def test_the_model_names_its_weights(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 2, 7], 20, shift=0.3, seed=1)
    card = adapt(vector_model, X, settings={"weights": "without-office"}).deployment
    assert card["weights"] == load_decision("without-office").version
    assert card["weights"] != adapt(vector_model, X).deployment["weights"]


def with_classifier(backbone: bytes, weight: np.ndarray, bias: np.ndarray, trans: int = 1) -> bytes:
    """The graph with logits as a second output."""
    model = onnx.ModelProto.FromString(backbone)
    graph = model.graph
    graph.initializer.extend([
        numpy_helper.from_array(weight if trans else weight.T.copy(), "fc.w"), numpy_helper.from_array(bias, "fc.b"),
    ])  # fmt: skip
    graph.node.append(helper.make_node("Gemm", [graph.output[0].name, "fc.w", "fc.b"], ["logits"], transB=trans))
    graph.output.append(helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["n", len(bias)]))
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize("trans", [0, 1])
def test_the_classifier_of_an_onnx_file_is_its_second_output(
    tmp_path: Path, photos: Path, new_photos: Path, trans: int
) -> None:
    plain = get_backbone("pixels")
    weight, bias = random_layer(plain.dim)
    (tmp_path / "m.onnx").write_bytes(with_classifier(plain.onnx, weight, bias, trans))
    (tmp_path / "m.onnx.json").write_text(json.dumps(plain.record))
    backbone = get_backbone(f"onnx:{tmp_path / 'm.onnx'}")
    assert backbone.last_layer is not None
    np.testing.assert_array_equal(backbone.last_layer[0], weight)
    np.testing.assert_array_equal(backbone.last_layer[1], bias)
    vendor = procure(photos, method="mixture", backbone=backbone)
    assert vendor.vendor.classifier is not None
    vendor.save(tmp_path / "v.usfda")
    again = load(tmp_path / "v.usfda")
    assert again.vendor.classifier is not None
    np.testing.assert_array_equal(again.vendor.classifier.share, vendor.vendor.classifier.share)
    one, other = (adapt(model, new_photos) for model in (vendor, again))
    assert one.deployment["check"] == other.deployment["check"]
    assert procure(photos, method="mixture", backbone=plain).vendor.classifier is None
    assert procure(photos, method="mixture", backbone=backbone, private=True).vendor.classifier is None


@given(st.integers(0, 50))
def test_the_summary_is_of_shares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    outputs = load_decision().outputs({"b": rng.normal(size=n)}, {"K": 1.0})
    w = np.full(n, 1 / n)
    label, known = rng.integers(0, 3, n), rng.random(n) < 0.5
    found = aggregates(outputs, w, rng.integers(0, 3, n), label, known)
    assert np.isfinite(found).all()
    assert (found[[0, 1, 2, 3, 6, 12, 13, 14]] <= 1 + 1e-9).all()


def made_tasks(tmp_path: Path) -> list[dict[str, Any]]:
    from training.generate import generate
    from training.measure import load_tasks

    assert "tasks" in generate(tmp_path, "made", "made", 12, 0)
    assert "there" in generate(tmp_path, "made", "made", 12, 0)
    return load_tasks(tmp_path, ["made"])


def test_training_on_made_vectors(tmp_path: Path) -> None:
    """Tasks are drawn, a network learns from them, and the package computes what torch does."""
    pytest.importorskip("torch")
    from training.network import Bank, TrainSettings, train, weights_of
    from training.train import BASICS, bank_of_outputs, outputs_of, save, tensors_of

    tasks = made_tasks(tmp_path)
    kinds = {task["kind"] for task in tasks}
    assert kinds == {"both", "none unknown", "none shared"}
    bank = Bank.of(tasks)
    chosen = np.arange(len(bank))
    settings = TrainSettings(epochs=2)
    first = train(bank, chosen, weights_of(bank, chosen), settings, [0, 1])
    of_outputs = bank_of_outputs(bank, [outputs_of(first, bank, i) for i in range(len(bank))])
    second = train(of_outputs, chosen, weights_of(bank, chosen), settings, [0, 1])
    tensors = {
        f"{name}.{key}": value
        for name, trained in (("first", first), ("second", second))
        for key, value in tensors_of(trained).items()
    }
    record = {"version": "test", "samples": bank.samples, "whole": bank.whole, "basics": BASICS}
    save(LearnedDecision(record, tensors), tmp_path / "w.safetensors")
    decision = load_decision(str(tmp_path / "w.safetensors"))
    for i in (0, len(tasks) - 1):
        task, n = tasks[i], len(tasks[i]["best"])
        expected = first(bank, i)
        found = decision.outputs(task["samples"], task["whole"])
        assert found.log_odds == pytest.approx(expected[:, 0], abs=0.02)
        assert found.known == pytest.approx(1 / (1 + np.exp(-expected[:, 1])), abs=0.01)
        smooth = NeighbourGraph(task["graph"], np.zeros(n)).smooth
        corrected = decision.corrected(found, task["whole"], np.full(n, 1 / n), task["best"], smooth)
        assert corrected.log_odds == pytest.approx(second(of_outputs, i)[:, 0], abs=0.05)


def test_figures_of_the_training_are_those_of_the_package() -> None:
    from training.measure import figure, oracle
    from usfda.methods.decision import Decision
    from usfda.metrics import score_decision

    rng = np.random.default_rng(0)
    truth = rng.choice(["a", "b", "c", "new"], 200)
    best, known, score = rng.integers(0, 3, 200), rng.random(200) < 0.6, rng.random(200)
    classes = ["a", "b", "c"]
    result = score_decision(truth, Decision(best, known, score), classes)
    task = {
        "known": truth != "new", "label": np.unique(truth, return_inverse=True)[1],
        "right": np.asarray(classes)[best] == truth,
    }  # fmt: skip
    assert figure(task, known) == pytest.approx(result["h_score"])
    assert oracle(task, score) >= max(figure(task, score >= q) for q in (0.3, 0.5, 0.7)) - 3


def test_vectors_without_a_backbone_have_no_classifier() -> None:
    X, names = blobs([0, 1, 2], 20)
    assert procure(Features(X, np.asarray(names)), method="mixture").vendor.classifier is None
