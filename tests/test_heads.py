"""What every head must keep: one contract for all, and the paper's own decision computed with torch."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usfda import InputError, Model, UsfdaSettings, adapt, load, procure
from usfda.methods.decision import known_score
from usfda.methods.heads import HEADS, FirstMixtureHead, Head, MixtureHead, starting_head
from usfda.methods.usfda.networks import D, from_arrays, make_f
from usfda.methods.vendor import Tensors, Vendor, own_part, run_f

# Known, new and far-off samples, some of them between two classes.
KNOWN, _ = blobs([0, 1, 2, 3], 12, shift=0.5, seed=1)
NEW, _ = blobs([7, 8, 9], 12, shift=0.5, seed=2)
SAMPLES = np.concatenate([KNOWN, NEW, 0.5 * KNOWN + 0.5 * NEW[[0]], (KNOWN[:12] + KNOWN[12:24]) / 2, 10 * NEW[:3]])


@pytest.fixture(scope="module")
def models(vector_model: Model) -> dict[str, Model]:
    """A model with each head."""
    X, y = blobs([0, 1, 2, 3, 4], 30)
    target = np.concatenate([KNOWN, NEW])
    made = {
        "source-network": vector_model,
        "class-means": procure(X, y, method="mixture"),
        "usfda": adapt(vector_model, target, method="usfda", settings=UsfdaSettings(steps=60)),
        "mixture": adapt(vector_model, target),
    }
    head, card = made["mixture"].head, made["mixture"].card
    assert isinstance(head, MixtureHead)
    of_0_1 = FirstMixtureHead(head.class_statistics, head.mean, head.centres, head.bias)
    made["mixture-0.1"] = Model(vector_model.source_classes, vector_model.vendor, of_0_1, None, card)
    assert {name: model.head.name for name, model in made.items()} == {name: name for name in HEADS}
    return made


every_head = pytest.mark.parametrize("name", HEADS)


@every_head
def test_probabilities(models: dict[str, Model], name: str) -> None:
    model = models[name]
    p = model.predict_proba(SAMPLES)
    assert p.shape == (len(SAMPLES), len(model.classes_) + 1)
    assert (p >= 0).all()
    assert p.sum(1) == pytest.approx(np.ones(len(SAMPLES)), abs=1e-5)


@every_head
def test_the_label_is_the_most_probable_column(models: dict[str, Model], name: str) -> None:
    model = models[name]
    best = model.predict_proba(SAMPLES).argmax(1)
    expected = np.asarray([*model.classes_, "unknown"])[best]
    assert np.array_equal(model.predict(SAMPLES, 0.5), expected)
    assert model.strictness == 0.5
    assert np.array_equal(model.predict(SAMPLES), expected)
    assert 0 < np.mean(expected == "unknown") < 1, "both answers occur"


@every_head
@settings(deadline=None, max_examples=20)
@given(s=st.floats(0, 1))
def test_unknown_is_where_the_score_is_below_the_strictness(models: dict[str, Model], name: str, s: float) -> None:
    model = models[name]
    decided = model.decide(SAMPLES, s)
    assert decided.probability is not None
    best = decided.probability[:, :-1].max(1).astype(np.float64)
    unknown = decided.probability[:, -1].astype(np.float64)
    assert np.array_equal(decided.known, decided.score >= s)
    assert np.array_equal(model.labels_of(decided) == "unknown", decided.score < s)
    assert decided.score == pytest.approx(best / (best + unknown))
    assert np.array_equal(decided.best, decided.probability[:, :-1].argmax(1))
    # The same by the probabilities, but where the two sides are equal to the last digits.
    gap = (1 - s) * best - s * unknown
    clear = np.abs(gap) > 1e-12 * (best + unknown)
    assert np.array_equal(decided.known[clear], gap[clear] >= 0)


@every_head
def test_strictness_goes_from_never_to_readily(models: dict[str, Model], name: str) -> None:
    model = models[name]
    shares = [float(np.mean(model.predict(SAMPLES, s) == "unknown")) for s in (0, 0.1, 0.5, 0.9, 1)]
    assert shares[0] == 0
    assert shares == sorted(shares)
    strict = model.decide(SAMPLES, 0.9).probability
    assert strict is not None
    assert np.array_equal(model.predict_proba(SAMPLES), strict)
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="strictness"):
            model.predict(SAMPLES, wrong)


@every_head
def test_one_sample_decides_as_in_a_crowd(models: dict[str, Model], name: str) -> None:
    model = models[name]
    together = model.decide(SAMPLES)
    assert together.probability is not None
    for i in range(len(SAMPLES)):
        alone = model.decide(SAMPLES[i : i + 1])
        assert alone.probability is not None
        assert alone.probability[0] == pytest.approx(together.probability[i], abs=1e-5)
        assert (alone.best[0], alone.known[0]) == (together.best[i], together.known[i])
        if together.cluster is not None:
            assert alone.cluster is not None
            assert alone.cluster[0] == together.cluster[i]


@every_head
def test_many_samples_decide_as_a_few(models: dict[str, Model], name: str) -> None:
    """They are taken a batch at a time."""
    model = models[name]
    many = np.concatenate([SAMPLES] * (5000 // len(SAMPLES) + 1))
    assert model.predict_proba(many)[-len(SAMPLES) :] == pytest.approx(model.predict_proba(SAMPLES), abs=1e-5)
    none = model.decide(SAMPLES[:0])
    assert none.probability is not None
    assert none.probability.shape == (0, len(model.classes_) + 1)


@every_head
def test_a_file_gives_back_the_head(models: dict[str, Model], name: str, tmp_path: Path) -> None:
    model = models[name]
    model.save(tmp_path / "a.usfda")
    again = load(tmp_path / "a.usfda")
    again.save(tmp_path / "b.usfda")
    assert (tmp_path / "a.usfda").read_bytes() == (tmp_path / "b.usfda").read_bytes()
    assert again.head.name == name
    assert again.adapted == model.adapted
    assert np.array_equal(again.predict_proba(SAMPLES), model.predict_proba(SAMPLES))
    assert np.array_equal(again.predict(SAMPLES), model.predict(SAMPLES))
    assert np.array_equal(again.transform(SAMPLES), model.transform(SAMPLES))
    one, two = (m.decide(SAMPLES) for m in (model, again))
    for column in ("best", "known", "score", "cluster"):
        assert np.array_equal(getattr(one, column), getattr(two, column)), column


@every_head
def test_the_ssm_is_that_of_the_vendors_networks(models: dict[str, Model], name: str) -> None:
    model = models[name]
    ssm = model.ssm(SAMPLES)
    records = list(model.predictions(SAMPLES))
    if model.vendor.networks is None:
        assert ssm is None
        assert {record.ssm for record in records} == {None}
    else:
        assert ssm is not None
        assert ((ssm >= 1) & (ssm <= np.e + 1e-5)).all()
        networks = models["source-network"].vendor.networks
        assert networks is not None
        assert np.array_equal(ssm, networks.ssm(SAMPLES))
        assert [record.ssm for record in records] == pytest.approx(ssm.tolist(), abs=1e-4)


@every_head
def test_clusters_are_of_unknown_samples(models: dict[str, Model], name: str) -> None:
    for s in (0.2, 0.9):
        decided = models[name].decide(SAMPLES, s)
        assert (decided.cluster is None) == (not name.startswith("mixture"))
        if decided.cluster is not None:
            assert np.array_equal(decided.cluster > 0, ~decided.known)


@every_head
def test_records_say_what_the_arrays_say(models: dict[str, Model], name: str) -> None:
    model = models[name]
    decided = model.decide(SAMPLES, 0.7)
    records = list(model.predictions(SAMPLES, 0.7))
    assert [record.label for record in records] == model.predict(SAMPLES, 0.7).tolist()
    assert [record.score for record in records] == pytest.approx(decided.score.tolist(), abs=1e-4)
    for record, best in zip(records, decided.best, strict=True):
        assert record.top[0][0] == model.classes_[best]
        shares = [share for _, share in record.top]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 1 + 1e-3
        assert record.label in ("unknown", record.top[0][0])
        if abs(record.score - 0.7) > 1e-3:
            assert (record.label == "unknown") == (record.score < 0.7)


@every_head
def test_the_latent_vectors_are_finite_and_of_one_size(models: dict[str, Model], name: str) -> None:
    u = models[name].transform(SAMPLES)
    assert u.ndim == 2
    assert len(u) == len(SAMPLES)
    assert np.isfinite(u).all()


@every_head
def test_vectors_that_are_too_large_are_an_error_and_not_a_label(models: dict[str, Model], name: str) -> None:
    model = models[name]
    huge = np.full((1, 32), 1e38, np.float32)
    with suppress(InputError):
        assert np.isfinite(model.predict_proba(huge)).all()


@every_head
@settings(deadline=None, max_examples=20)
@given(X=hnp.arrays(np.float32, (3, 32), elements=st.floats(-100, 100, width=32)))
def test_any_vectors_get_probabilities(models: dict[str, Model], name: str, X: np.ndarray) -> None:
    p = models[name].predict_proba(X)
    assert (p >= 0).all()
    assert p.sum(1) == pytest.approx(np.ones(3), abs=1e-5)


@every_head
def test_the_parts_of_a_head_in_the_file(models: dict[str, Model], name: str) -> None:
    """A head's own tensors, and the shapes that are asked of a stranger's file, are the same list."""
    model = models[name]
    own = model.head.tensors()
    shapes = {key: tensor.shape for key, tensor in own.items()}
    assert HEADS[name].layout(shapes, len(model.classes_), model.dim) == shapes
    vendor = {key: tensor.shape for key, tensor in model.vendor.tensors().items()}
    assert Vendor.layout(vendor, len(model.classes_)) == vendor
    again = HEADS[name].build(Vendor.build(model.vendor.tensors()), own)
    assert np.array_equal(again.probability(SAMPLES), model.head.probability(SAMPLES))
    assert getattr(model.vendor, HEADS[name].needs) is not None


def test_the_client_starts_from_the_networks_or_else_from_the_prototypes(models: dict[str, Model]) -> None:
    assert starting_head(models["mixture"].vendor).name == "source-network"
    assert starting_head(models["class-means"].vendor).name == "class-means"


@dataclass(frozen=True)
class Fixed(Head):
    """Answers what it was given."""

    p: Any
    name = part = "fixed"
    needs = "class_statistics"

    def probability(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self.p)

    def latent(self, v: np.ndarray) -> np.ndarray:
        return v

    @classmethod
    def build(cls, vendor: Vendor, tensors: Tensors) -> Head:
        return cls([])


def fixed(models: dict[str, Model], p: Any) -> Model:
    return Model(["a", "b"], models["class-means"].vendor, Fixed(p), None, models["class-means"].card)


@pytest.mark.parametrize(
    ("p", "label"),
    [
        ([0.3, 0.3, 0.4], "unknown"),
        ([0.3, 0.4, 0.3], "b"),
        ([0.4, 0.2, 0.4], "a"),
        ([0.34, 0.0, 0.66], "unknown"),
        ([0.0, 0.0, 1.0], "unknown"),
        ([1.0, 0.0, 0.0], "a"),
    ],
)
def test_the_label_goes_with_the_probabilities(models: dict[str, Model], p: list[float], label: str) -> None:
    """Fault: [.3, .3 | .4] was labelled known, as .6 of it is known."""
    assert fixed(models, [p]).predict(np.zeros((1, 32))).tolist() == [label]


def test_a_head_that_fails_is_an_error(models: dict[str, Model]) -> None:
    with pytest.raises(InputError, match="finite"):
        fixed(models, [[np.nan, 0.5, 0.5]]).predict(np.zeros((1, 32)))


def test_no_sample_of_paper_with_a_high_score_is_unknown(models: dict[str, Model]) -> None:
    """Fault: the score was the share of all source classes, the label the argmax: one with score .72 was unknown."""
    for name in ("source-network", "usfda"):
        decided = models[name].decide(SAMPLES)
        assert np.array_equal(decided.known, decided.score >= 0.5)
        labels = models[name].predict(SAMPLES)
        assert not ((labels == "unknown") & (decided.score >= 0.5)).any()
        assert not ((labels != "unknown") & (decided.score < 0.5)).any()


def torch_f(weights: Tensors, X: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        u: torch.Tensor = from_arrays(make_f(32), weights)(torch.from_numpy(X))
    return u


def test_f_is_that_of_torch(models: dict[str, Model]) -> None:
    for name, part in (("source-network", "F_s"), ("usfda", "F_t")):
        head, vendor = models[name].head.tensors(), models[name].vendor.tensors()
        weights = head if part == "F_t" else own_part(vendor, "F_s")
        expected = torch_f(weights, SAMPLES).numpy()
        assert run_f(weights, SAMPLES) == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert models[name].transform(SAMPLES) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_the_papers_decision_is_the_argmax_over_all_classes(models: dict[str, Model]) -> None:
    """With torch: the most probable of K = |C_s| + |C_n|; any negative class is unknown. And the SSM, eq. 2."""
    model = models["source-network"]
    networks = model.vendor.networks
    assert networks is not None
    d = from_arrays(D(networks.classes, networks.negative_classes), networks.D)
    weights = {"source-network": networks.F_s, "usfda": models["usfda"].head.tensors()}
    for name, f in weights.items():
        with torch.no_grad():
            z = d(torch_f(f, SAMPLES)).softmax(1).numpy()
        names = np.asarray([*model.classes_, *["unknown"] * networks.negative_classes])
        decided = models[name].decide(SAMPLES)
        # Where two classes are equal to the last digits, either may win.
        clear = np.diff(np.sort(z, axis=1)[:, -2:], axis=1)[:, 0] > 1e-5
        assert clear.mean() > 0.9
        assert np.array_equal(models[name].predict(SAMPLES)[clear], names[z.argmax(1)][clear])
        negative = z[:, networks.classes :].max(1)
        best = z[:, : networks.classes].max(1)
        assert decided.score == pytest.approx(best / (best + negative), abs=1e-4)
        if name == "source-network":
            assert models[name].ssm(SAMPLES) == pytest.approx(np.exp(best), rel=1e-5)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=6).filter(lambda row: sum(row) > 1e-3))
def test_score_and_argmax_agree(row: list[float]) -> None:
    p = np.asarray([row], np.float32)
    p /= p.sum()
    score = known_score(p)
    assert 0 <= score[0] <= 1
    assert (score[0] >= 0.5) == (p.argmax(1)[0] < len(row) - 1)
