import numpy as np
import pytest
from conftest import blobs
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from usfda import Decision, InputError, Model, evaluate
from usfda.metrics import calibration_error, one_shot, score, score_decision

CLASSES = ["a", "b", "c"]


def test_by_hand() -> None:
    truth = np.asarray(list("aaaabbxxxy"))
    predicted = np.asarray(["a", "a", "b", "unknown", "b", "unknown", "unknown", "unknown", "c", "unknown"])
    best = np.asarray(list("aaaabbabca"))
    known = np.asarray([0.9, 0.8, 0.7, 0.4, 0.9, 0.3, 0.2, 0.1, 0.8, 0.3])
    r = score(truth, predicted, best, known, CLASSES)
    shared = (50 + 50) / 2
    assert r["shared_accuracy"] == pytest.approx(shared)
    assert r["t_unk"] == pytest.approx(75)
    assert r["t_avg"] == pytest.approx((50 + 50 + 75) / 3)
    assert r["h_score"] == pytest.approx(2 * shared * 75 / (shared + 75))
    assert r["closed_accuracy"] == pytest.approx(100)
    assert r["auroc"] == pytest.approx(100 * roc_auc_score([1] * 6 + [0] * 4, known))
    assert r["samples"] == 10
    assert r["unknown_share"] == pytest.approx(50)
    assert r["per_class"] == {
        "a": {"accuracy": 50, "samples": 4},
        "b": {"accuracy": 50, "samples": 2},
        "x": {"accuracy": pytest.approx(200 / 3), "samples": 3},
        "y": {"accuracy": 100, "samples": 1},
    }
    assert r["confusion"] == {
        "labels": ["a", "b", "c", "unknown"],
        "matrix": [[2, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 3]],
    }


def test_nothing_shared_and_nothing_private_are_legal() -> None:
    predicted, known = np.asarray(["unknown", "a"]), np.asarray([0.2, 0.7])
    nothing = score(np.asarray(["x", "y"]), predicted, np.asarray(["a", "a"]), known, CLASSES)
    assert nothing["t_avg"] == nothing["t_unk"] == 50
    assert [nothing[k] for k in ("h_score", "shared_accuracy", "closed_accuracy", "auroc")] == [None] * 4
    closed = score(np.asarray(["a", "a"]), predicted, np.asarray(["a", "a"]), known, CLASSES)
    assert [closed[k] for k in ("t_unk", "h_score", "auroc")] == [None] * 3
    assert (closed["t_avg"], closed["shared_accuracy"], closed["closed_accuracy"]) == (50, 50, 100)


def test_h_of_nothing_right_is_zero() -> None:
    r = score(np.asarray(["a", "x"]), np.asarray(["b", "a"]), np.asarray(["b", "a"]), np.ones(2), CLASSES)
    assert r["h_score"] == 0


@given(st.lists(st.tuples(st.sampled_from("abcxy"), st.sampled_from(["a", "b", "c", "unknown"])), min_size=1))
def test_bounds_and_order(pairs: list[tuple[str, str]]) -> None:
    truth, predicted = (np.asarray(column) for column in zip(*pairs, strict=True))
    known = np.linspace(0, 1, len(truth))
    best = np.where(predicted == "unknown", "a", predicted)
    r = score(truth, predicted, best, known, CLASSES)
    for key in ("t_avg", "t_unk", "h_score", "shared_accuracy", "closed_accuracy", "auroc", "ece", "unknown_share"):
        assert r[key] is None or 0 <= r[key] <= 100 + 1e-9
    if r["shared_accuracy"] is not None:
        assert r["closed_accuracy"] >= r["shared_accuracy"] - 1e-9
    if r["h_score"] is not None:
        low, high = sorted([r["shared_accuracy"], r["t_unk"]])
        assert low - 1e-9 <= r["h_score"] <= high + 1e-9
    order = np.random.default_rng(0).permutation(len(truth))
    again = score(truth[order], predicted[order], best[order], known[order], CLASSES)
    assert again["t_avg"] == pytest.approx(r["t_avg"])
    assert np.sum(r["confusion"]["matrix"]) == len(truth)


def test_calibration() -> None:
    rng = np.random.default_rng(0)
    s = rng.random(100_000)
    assert calibration_error(s, rng.random(100_000) < s) < 1
    assert calibration_error(np.ones(10), np.arange(10) < 3) == pytest.approx(70)


def test_one_shot() -> None:
    rng = np.random.default_rng(0)
    u = np.repeat(np.eye(4) * 50, 10, 0) + rng.normal(size=(40, 4))
    assert one_shot(u, np.repeat(list("abcd"), 10)).mean == 100
    chance = one_shot(rng.normal(size=(400, 4)), np.repeat(list("abcd"), 100))
    assert 15 < chance.mean < 35
    assert chance.deviation > 0


def test_one_shot_needs_a_sample_to_recognise() -> None:
    with pytest.raises(InputError, match="single"):
        one_shot(np.eye(3), np.asarray(list("abc")))


def test_a_decision_is_scored_by_its_labels() -> None:
    truth = np.asarray(list("abx"))
    decision = Decision(np.asarray([0, 1, 2]), np.asarray([True, False, False]), np.asarray([0.9, 0.4, 0.1]))
    r = score_decision(truth, decision, CLASSES)
    assert (r["shared_accuracy"], r["closed_accuracy"], r["t_unk"]) == (50, 100, 100)


def test_rename(vector_model: Model) -> None:
    X, y = blobs([0, 1], 20, seed=2)
    theirs = np.where(y == "c0", "zero", y)
    assert evaluate(vector_model, X, y)["t_unk"] is None
    assert evaluate(vector_model, X, theirs)["t_unk"] is not None
    renamed = evaluate(vector_model, X, theirs, rename={"zero": "c0"})
    assert renamed == evaluate(vector_model, X, y)
    with pytest.raises(InputError, match="c99"):
        evaluate(vector_model, X, theirs, rename={"zero": "c99"})
