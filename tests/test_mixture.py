import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st

from usfda import InputError, MixtureSettings, Model, adapt, load, procure, teach
from usfda.data.reading import UNKNOWN
from usfda.methods.mixture.checks import absent_classes
from usfda.methods.mixture.class_statistics import fit_class_statistics
from usfda.methods.mixture.fit import WeightedSamples, components, make_coreset, smooth_over_neighbours
from usfda.methods.mixture.neighbours import mutual_neighbours
from usfda.methods.mixture.split import two_components
from usfda.methods.mixture.target import TargetView
from usfda.methods.vendor import ClassStatistics, Vendor
from usfda.metrics import one_shot
from usfda.text import stages as text

USFDA = MixtureSettings()


def unit(rows: np.ndarray) -> np.ndarray:
    length: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return length


def rooted(X: np.ndarray) -> np.ndarray:
    root: np.ndarray = np.sign(X) * np.sqrt(np.abs(X))
    return root


def own_geometry(model: Model) -> ClassStatistics:
    assert model.vendor.class_statistics is not None
    return model.vendor.class_statistics


def numpy_class_statistics(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W, which whitens the shrunk covariance within the classes, the mean of the class means, and the prototypes."""
    d, classes = X.shape[1], range(y.max() + 1)
    x = rooted(X)
    means = np.stack([x[y == c].mean(0) for c in classes])
    within = np.cov((x - means[y]).T, bias=True)
    sigma = 0.2 * within + 0.8 * np.trace(within) / d * np.eye(d)
    W, mean = np.linalg.inv(np.linalg.cholesky(sigma)), means.mean(0)
    z = unit((x - mean) @ W.T)
    return W, mean, unit(np.stack([z[y == c].mean(0) for c in classes]))


def agree_with_numpy(home: ClassStatistics, X: np.ndarray, y: np.ndarray, quantile_within: float = 1e-3) -> None:
    """The within-class similarity leaves the sample out; the quantile is of the other half."""
    W, mean, prototypes = numpy_class_statistics(X, y)
    z = unit((rooted(X) - mean) @ W.T)
    assert home.whitener == pytest.approx(W, rel=1e-3, abs=1e-3)
    assert home.overall_mean == pytest.approx(mean, abs=1e-4)
    assert home.whiten(X, mean) == pytest.approx(z, abs=1e-4)
    assert home.means == pytest.approx(prototypes, abs=1e-4)
    sums = np.stack([z[y == c].sum(0) for c in range(y.max() + 1)])
    assert float(home.within_class_similarity) == pytest.approx(np.mean((unit(sums[y] - z) * z).sum(1)), abs=1e-4)
    cosines = []
    halves = np.arange(0, len(y), 2), np.arange(1, len(y), 2)  # the classes stand one after the other
    for fitted, rest in (halves, halves[::-1]):
        W, mean, prototypes = numpy_class_statistics(X[fitted], y[fitted])
        cosines.append((unit((rooted(X[rest]) - mean) @ W.T) * prototypes[y[rest]]).sum(1))
    assert float(home.similarity_quantile) == pytest.approx(
        np.quantile(np.concatenate(cosines), 0.05), abs=quantile_within
    )


def test_geometry_against_numpy() -> None:
    X, names = blobs([0, 1, 2], 7, d=5)
    y = np.unique(names, return_inverse=True)[1]
    agree_with_numpy(fit_class_statistics(X, y, 3), X, y)


class Watched:
    """Vectors of which one can see how many are read at once."""

    def __init__(self, X: np.ndarray):
        self.X, self.shape, self.most = X, X.shape, 0

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, index: Any) -> np.ndarray:
        rows: np.ndarray = self.X[index]
        self.most = max(self.most, len(rows))
        return rows


def test_geometry_takes_its_samples_in_pieces() -> None:
    """And its floor from a part of them, so that memory does not grow with their number."""
    X, names = blobs([0, 1, 2], 4000, d=5)
    y = np.unique(names, return_inverse=True)[1]
    watched = Watched(X)
    agree_with_numpy(fit_class_statistics(watched, y, 3), X, y, quantile_within=0.01)
    assert watched.most <= 4096


@pytest.mark.parametrize("samples", [1, 2])
def test_geometry_of_few_or_constant_samples_is_finite(samples: int) -> None:
    y = np.repeat([0, 1], samples)
    for X in (np.zeros((2 * samples, 4)), np.eye(4)[: 2 * samples]):
        home = fit_class_statistics(X.astype(np.float32), y, 2)
        assert all(np.isfinite(getattr(home, field.name)).all() for field in fields(home))


def test_neighbours_are_mutual() -> None:
    rng = np.random.default_rng(0)
    z = unit(rng.normal(size=(60, 4))).astype(np.float32)
    graph = mutual_neighbours(z, 5, 10)
    cosine = z @ z.T - 3 * np.eye(60)
    near = np.argsort(-cosine, axis=1)[:, :6]  # 60 / (2·5)
    for i in range(60):
        mutual = {j for j in near[i] if i in near[j] and cosine[i, j] > 0}
        assert set(graph.weight[i].nonzero()[1]) == mutual
        assert graph.density[i] == pytest.approx(cosine[i, near[i]].mean(), abs=1e-5)
    by_hand = z
    dense = graph.weight.toarray()
    for _ in range(3):
        by_hand = (by_hand + dense @ by_hand) / (1 + dense.sum(1, keepdims=True))
    assert smooth_over_neighbours(z, graph, 3) == pytest.approx(unit(by_hand), abs=1e-5)


def view_of(similarity: np.ndarray, weight: np.ndarray | None = None) -> TargetView:
    """A target whose similarities to orthogonal class means are these."""
    n, k = similarity.shape
    v = similarity.astype(np.float32)
    zero, w = np.zeros((), np.float32), np.ones(n) if weight is None else weight
    eye = np.eye(k, dtype=np.float32)
    class_statistics = ClassStatistics(eye, eye, np.zeros(k, np.float32), zero, zero)
    graph = mutual_neighbours(unit(v), k, 10)
    return TargetView(Vendor(None, class_statistics), eye, v, w, v.mean(0), v, np.ones(n), v, v, graph)


def scores(known: int, unknown: int, classes: int = 8, seed: int = 0) -> np.ndarray:
    """Similarities as they look in the target: null for all classes, and one high for the known."""
    rng = np.random.default_rng(seed)
    made = rng.normal(0, 0.08, (known + unknown, classes))
    made[np.arange(known), rng.integers(0, classes, known)] += rng.normal(0.55, 0.1, known)
    return made


@pytest.mark.parametrize(("known", "unknown"), [(300, 300), (300, 60), (300, 9), (60, 300), (9, 300)])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_two_components_separate_known_from_unknown(known: int, unknown: int, scale: float) -> None:
    """Whatever share is unknown, and however much of the similarity a shift has left."""
    found = two_components(view_of(scale * scores(known, unknown))).log_odds
    assert np.mean(found[:known] > 0) > 0.85
    assert np.mean(found[known:] < 0) > 0.85


def test_weights_are_copies() -> None:
    made = scores(60, 40)
    weight = np.random.default_rng(1).integers(1, 4, 100)
    one = two_components(view_of(made, weight.astype(float)))
    copies = np.repeat(np.arange(100), weight)
    other = two_components(view_of(made[copies]))
    assert one.log_odds[copies] == pytest.approx(other.log_odds, abs=1e-3)


@settings(max_examples=40)
@given(st.integers(2, 40), st.integers(2, 6), st.integers(0, 99))
def test_log_odds_of_any_scores_are_finite_and_monotone(n: int, k: int, seed: int) -> None:
    made = np.random.default_rng(seed).normal(0, 0.3, (n, k))
    found = two_components(view_of(made)).log_odds
    assert np.isfinite(found).all()
    assert (np.diff(found[np.argsort(made.max(1))]) >= -1e-6).all()


def mixture_of(v: np.ndarray, known: np.ndarray, prototypes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres and masses for samples of which some are known."""
    points = WeightedSamples(v, np.ones(len(v)), np.ones(len(v)))
    return components(v, (v @ prototypes.T).argmax(1), known, prototypes, points, USFDA, 0)


def test_components_of_clear_groups() -> None:
    """Two classes present, one absent, two unknown clusters of the same size: the centres are the means."""
    eye = np.eye(5)
    v = np.repeat(eye[[0, 1, 3, 4]], 20, 0)
    known = np.repeat([True, True, False, False], 20)
    centres, mass = mixture_of(v, known, eye[:3])
    assert mass.tolist() == [20, 20, 0, 20, 20]
    assert centres[:3] == pytest.approx(eye[:3])
    assert sorted(centres[3:].argmax(1).tolist()) == [3, 4]


TARGETS = {
    "open-partial": ([0, 1, 2, 7, 8, 9], 0.85),
    "partial": ([0, 1, 2], 0.85),
    "closed": ([0, 1, 2, 3, 4], 0.85),
    "nothing shared": ([6, 7, 8, 9], 0.7),
}


@pytest.mark.parametrize("gap", TARGETS)
def test_every_gap_of_shifted_blobs(vector_model: Model, gap: str) -> None:
    classes, least = TARGETS[gap]
    X, y = blobs(classes, 40, shift=0.5, seed=1)
    adapted = adapt(vector_model, X)
    expected = np.where(np.isin(y, adapted.classes_), y, "unknown")
    assert np.mean(adapted.predict(X) == expected) > least


@pytest.mark.parametrize("target", [[0, 1, 7], [0, 1, 2], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("named", [False, True])
def test_classes_not_seen_in_adaptation_are_unknown(vector_model: Model, target: list[int], named: bool) -> None:
    """Kinds of things that the target did not have: whether or not it has clusters of the unknown that are nameless."""
    adapted = adapt(vector_model, blobs(target, 40, 0.3, seed=1)[0])
    clusters = adapted.findings.clusters  # type: ignore[union-attr]
    if named and clusters:
        adapted = teach(adapted, names={c.number: "new" for c in clusters})
    (unseen, _), (more, labels) = blobs([8, 9], 40, 0.3, seed=2), blobs(target[:2], 40, 0.3, seed=3)
    assert np.mean(adapted.predict(unseen) == UNKNOWN) > 0.8
    assert np.mean(adapted.predict(more) == labels) > 0.9


def test_the_rest_is_a_matter_of_similarity_alone(vector_model: Model) -> None:
    """Neither a large target, in which a class is rare or absent, nor names for clusters make it larger."""
    (absent, labels), (unseen, _) = blobs([2, 3, 4], 40, 0.3, seed=2), blobs([8, 9], 40, 0.3, seed=3)
    for each in (20, 800):
        target, _ = blobs([0, 1, 7], each, 0.3, seed=1)
        adapted, without = (adapt(vector_model, target, settings=given) for given in ({}, {"outlier": 0.0}))
        right, before = (np.mean(model.predict(absent) == labels) for model in (adapted, without))
        assert right > before - 0.05
        named = teach(adapted, names={c.number: "new" for c in adapted.findings.clusters})  # type: ignore[union-attr]
        assert np.array_equal(named.predict(unseen), adapted.predict(unseen))
        cluster = adapted.decide(unseen).cluster
        assert cluster is not None
        assert not cluster.any()  # they are of no cluster, either
    none = adapt(vector_model, blobs([0, 1, 2], 40, 0.3, seed=1)[0], settings={"outlier": 0.0})
    assert UNKNOWN not in none.predict(unseen)


def test_it_is_inductive_and_survives_its_file(vector_model: Model, tmp_path: Path) -> None:
    """A sample's label does not depend on who comes with it, and new samples of the domain are labelled, too."""
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=0.5, seed=1)
    new, y = blobs([0, 1, 2, 7, 8], 10, shift=0.5, seed=2)
    adapted = adapt(vector_model, X)
    adapted.save(tmp_path / "m.usfda")
    again = load(tmp_path / "m.usfda")
    together = again.predict(new)
    assert [again.predict(row[None])[0] for row in new] == together.tolist()
    assert np.mean(together == np.where(np.isin(y, adapted.classes_), y, "unknown")) > 0.85
    assert again.predict_proba(new) == pytest.approx(adapted.predict_proba(new), abs=1e-6)
    assert again.card == json.loads(json.dumps(adapted.card))
    u = again.transform(new)
    assert np.linalg.norm(u, axis=1) == pytest.approx(np.ones(len(new)), abs=1e-4)
    assert one_shot(u, y).mean > 80


def test_the_same_seed_gives_the_same_model_and_a_large_target_a_part_of_it(vector_model: Model) -> None:
    X, y = blobs([0, 1, 2, 7, 8], 60, shift=0.5, seed=1)
    one, two = (adapt(vector_model, X, seed=3).head.tensors() for _ in range(2))
    assert np.array_equal(one["centres"], two["centres"])
    assert len(X) < USFDA.most
    part = adapt(vector_model, X, seed=3, settings=MixtureSettings(most=100))
    assert not np.array_equal(part.head.tensors()["centres"], one["centres"])
    assert not np.array_equal(part.head.tensors()["mean"], one["mean"])  # of the same samples as all else in the file
    assert np.mean(part.predict(X) == np.where(np.isin(y, part.classes_), y, "unknown")) > 0.85


def test_strictness_moves_from_never_to_readily(vector_model: Model, tmp_path: Path) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 30, shift=1.0, seed=1)
    calls: tuple[dict[str, Any], ...] = ({"method": "mixture"}, {"method": "usfda", "settings": {"steps": 60}})
    for call in calls:
        adapted = adapt(vector_model, X, **call)
        shares = [np.mean(adapted.predict(X, s) == "unknown") for s in (0, 0.2, 0.5, 0.8, 1)]
        assert shares == sorted(shares)
        assert shares[0] == 0
        assert shares[-1] > shares[2] > 0
        assert shares[2] == np.mean(adapted.predict(X) == "unknown")
        lenient = adapt(vector_model, X, strictness=0.0, **call)
        lenient.save(tmp_path / "m.usfda")
        assert "unknown" not in load(tmp_path / "m.usfda").predict(X)
    with pytest.raises(InputError, match="strictness"):
        adapted.predict(X, -0.1)


@pytest.mark.parametrize("strictness", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("most", [100, 5000])
def test_what_adapt_reports_is_what_the_model_does(vector_model: Model, strictness: float, most: int) -> None:
    """Faults: the strictness was ignored by clusters and examples; cluster sizes were those of a part."""
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=1.0, seed=1)
    adapted = adapt(vector_model, X, strictness=strictness, settings=MixtureSettings(most=most))
    decided = adapted.decide(X)
    card = adapted.deployment
    assert decided.cluster is not None
    assert ((decided.cluster > 0) == ~decided.known).all()
    assert card["unknown_share"] == pytest.approx(100 * np.mean(~decided.known), abs=0.01)
    sizes = card["check"]["clusters"]
    assert sizes == {str(c): int(np.sum(decided.cluster == c)) for c in np.unique(decided.cluster[~decided.known])}
    assert sum(sizes.values()) == np.sum(~decided.known)
    assert set(adapted.examples) <= {int(c) for c in sizes}
    for cluster, names in adapted.examples.items():
        assert all(decided.cluster[int(name)] == cluster for name in names)
    if most > len(X):
        assert {c: len(names) for c, names in adapted.examples.items()} == {int(c): min(5, n) for c, n in sizes.items()}


def test_strictness_moves_what_adapt_reports(vector_model: Model) -> None:
    """But for the verdict, which is about the decision at ½."""
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=1.0, seed=1)
    shares, sizes, verdicts = [], [], []
    for strictness in (0.0, 0.5, 1.0):
        adapted = adapt(vector_model, X, strictness=strictness)
        card = adapted.deployment
        shares.append(card["unknown_share"])
        sizes.append(sum(card["check"].get("clusters", {}).values()))
        verdicts.append(card["check"]["expected"]["adapted"])
        assert bool(adapted.examples) == (sizes[-1] > 0)
    assert 0 == shares[0] < shares[1] <= shares[2]
    assert 0 == sizes[0] < sizes[1] <= sizes[2]
    assert len(set(verdicts)) == 1


def test_unknown_samples_form_clusters_with_examples(vector_model: Model) -> None:
    X, y = blobs([0, 1, 2, 7, 8], 40, shift=0.5, seed=1)
    adapted = adapt(vector_model, X)
    for names in adapted.examples.values():
        assert len({y[int(name)] for name in names}) == 1
    sizes = adapted.deployment["check"]["clusters"]
    records = list(adapted.predictions(X))
    assert {r.cluster for r in records if r.label == "unknown"} == {int(c) for c in sizes}
    assert {r.cluster for r in records if r.label != "unknown"} == {None}


def test_absent_classes() -> None:
    p = np.tile([[0.5, 0.3, 0.2]], (40, 1))
    assert absent_classes(p, ["a", "b"], np.ones(40)) == []
    p[:, 1] = 0.001
    assert absent_classes(p, ["a", "b"], np.ones(40)) == ["b"]
    assert absent_classes(p[:3], ["a", "b"], np.ones(3)) == [], "too few to show every class"


def test_where_the_class_means_are_expected_to_be_better_they_are_used(
    vector_model: Model, pessimist: Path, tmp_path: Path
) -> None:
    X, _ = blobs([0, 1, 2, 7], 30, shift=0.5, seed=1)
    assert adapt(vector_model, X).head.name == "mixture"
    adapted = adapt(vector_model, X, settings={"weights": str(pessimist)})
    check = adapted.deployment["check"]
    assert check["verdict"] == "kept"
    assert check["expected"]["adapted"] < check["expected"]["class_means"]
    assert adapted.adapted
    assert adapted.head.name == "class-means"
    assert adapted.examples == {}
    adapted.save(tmp_path / "m.usfda")
    assert load(tmp_path / "m.usfda").adapted


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_tiny_targets(vector_model: Model, n: int) -> None:
    X, _ = blobs([0, 8], 40, seed=1)
    p = adapt(vector_model, X[:n]).predict_proba(X)
    assert np.isfinite(p).all()
    assert p.sum(1) == pytest.approx(np.ones(len(X)), abs=1e-4)


def test_a_single_sample_changes_nothing(vector_model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: the mean that was saved for a target of one image was its vector."""
    X, _ = blobs([0, 1, 7], 1, seed=1)
    for row in X:
        adapted = adapt(vector_model, row[None])
        assert adapted.adapted
        assert adapted.head.name == "source-network"
        assert text.one_sample(update=False) in caplog.messages
        assert np.array_equal(adapted.predict_proba(X), vector_model.predict_proba(X))
        adapted.save(tmp_path / "m.usfda")
        again = load(tmp_path / "m.usfda")
        assert again.vendor.tensors().keys() == vector_model.vendor.tensors().keys()
        assert again.head.tensors() == {}
        assert again.deployment["samples"] == 1


def nearest_single_sample(adapted: Model, X: np.ndarray) -> float:
    """The largest cosine between a row that the client saved and the vector of a single sample, in any form of it.

    Rows that are the vendor's own prototypes say nothing of the target.
    """
    saved, home = adapted.head.tensors(), own_geometry(adapted)
    own = ~(saved["centres"][:, None] == home.means[None]).all(2).any(1)
    forms = np.concatenate([home.whiten(X, mean) for mean in (saved["mean"], home.overall_mean)])
    kept = np.concatenate([saved["mean"][None], saved["coreset"]])
    means = max(float(np.abs(unit(kept) @ unit(rows).T).max()) for rows in (X, rooted(X)))
    return max(means, float((unit(saved["centres"][own]) @ forms.T).max(initial=-1)))


def lone_samples(seed: int) -> np.ndarray:
    """Classes and clusters of one sample each, some beside proper ones."""
    rng = np.random.default_rng(seed)
    many, _ = blobs(rng.permutation(10)[: rng.integers(0, 4)].tolist() or [0], int(rng.integers(2, 30)), seed=seed)
    lone, _ = blobs(rng.permutation(10)[: rng.integers(1, 6)].tolist(), 1, seed=seed + 1)
    odd = rng.normal(0, 4, (rng.integers(0, 4), 32)).astype(np.float32)
    return np.concatenate([many, lone, odd])


@pytest.mark.parametrize("seed", range(30))
def test_no_vector_of_a_single_sample_is_saved(vector_model: Model, seed: int) -> None:
    """Fault: a cluster, or a class, of one sample was saved as the vector of that sample."""
    X = lone_samples(seed)
    adapted = adapt(vector_model, X)
    if adapted.head.name == "mixture":
        # Two blobs' own samples have a cosine of at most 0.95 with their mean; a saved vector would have 1.
        assert nearest_single_sample(adapted, X) < 0.999


@pytest.mark.parametrize("classes", [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], list(range(10))])
def test_no_vector_of_a_single_sample_is_saved_where_all_stand_alone(vector_model: Model, classes: list[int]) -> None:
    X, _ = blobs(classes, 1, seed=4)
    adapted = adapt(vector_model, X)
    if adapted.head.name == "mixture":
        assert nearest_single_sample(adapted, X) < 0.999


def test_every_centre_has_two_samples_behind_it() -> None:
    """Also where a sample lies nearer to the direction of another cluster than to that of its own."""
    a, b = np.eye(6)[0], np.eye(6)[1]
    c = (
        0.72 * a + np.sqrt(1 - 0.72**2) * np.eye(6)[2]
    )  # of a tight cluster; a is nearer to it by angle, not by distance
    v = np.stack([a, b, c, c, c])
    prototypes = np.eye(6)[4:]
    centres, mass = mixture_of(v, np.zeros(5, bool), prototypes)
    assert (centres[2:] @ np.stack([a, b]).T < 0.999).all()
    assert mass[2:].min() >= 2


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 20), st.integers(2, 5), st.integers(0, 10**6))
def test_clusters_of_any_samples_have_two_images_behind_them(n: int, classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    v, prototypes = (unit(rng.normal(size=(rows, 6))) for rows in (n, classes))
    centres, _ = mixture_of(v, rng.random(n) < 0.2, prototypes)
    own = ~(centres[:, None] == prototypes[None]).all(2).any(1)
    assert (centres[own] @ v.T < 1 - 1e-6).all()


def test_copies_of_one_image_are_one(vector_model: Model, caplog: pytest.LogCaptureFixture) -> None:
    X, _ = blobs([0, 1, 2, 7], 12, seed=1)
    lone = blobs([8], 1, seed=3)[0]
    assert adapt(vector_model, np.repeat(lone, 4, 0)).head.name == "source-network"
    assert text.one_sample(update=False) in caplog.messages
    target = np.concatenate([X, np.repeat(lone, 5, 0)])
    adapted = adapt(vector_model, target)
    assert adapted.head.name == "mixture"
    assert nearest_single_sample(adapted, target) < 0.999


def test_a_class_of_one_sample_keeps_the_vendors_prototype() -> None:
    eye = np.eye(5)
    near = unit(eye[:2] + 0.2 * eye[2])
    v = np.concatenate([near[[0, 0, 0]], near[[1]]])
    centres, mass = mixture_of(v, np.ones(4, bool), eye[:2])
    assert centres[0] == pytest.approx(near[0])
    assert centres[1] == pytest.approx(eye[1])
    assert mass.tolist() == [3, 1]


def test_the_vendors_own_statistics_have_two_samples_behind_them() -> None:
    X, y = blobs([0, 1], 2)
    model = procure(X, y, method="mixture")
    home = own_geometry(model)
    assert ((home.means @ home.whiten(X, home.overall_mean).T) < 0.999).all()
    with pytest.raises(InputError, match="c1"):
        procure(X[:3], y[:3], method="mixture")


def test_a_source_class_of_copies_is_refused(photos: Path, tmp_path: Path) -> None:
    image = (photos / "kind0" / "000.png").read_bytes()
    (tmp_path / "copies").mkdir()
    for name in ("one.png", "two.png"):
        (tmp_path / "copies" / name).write_bytes(image)
    for kind in ("kind1", "kind2"):
        (tmp_path / kind).symlink_to(photos / kind)
    with pytest.raises(InputError, match="copies"):
        procure(tmp_path, method="mixture", backbone="pixels")


def pieces_of(X: np.ndarray, count: int) -> list[np.ndarray]:
    return [X[part] for part in np.array_split(np.random.default_rng(0).permutation(len(X)), count)]


def test_a_stream_in_pieces_ends_where_all_at_once_does(vector_model: Model, tmp_path: Path) -> None:
    X, y = blobs([0, 1, 2, 7, 8], 80, shift=0.5, seed=1)
    expected = np.where(np.isin(y, vector_model.classes_), y, "unknown")
    first, *rest = pieces_of(X, 10)
    model = adapt(vector_model, first)
    for batch in rest:
        model.save(tmp_path / "m.usfda")  # nothing but the file is left of the earlier batches
        model = adapt(load(tmp_path / "m.usfda"), batch, update=True)
    card = model.deployment
    assert (card["samples"], card["earlier_samples"]) == (40, 360)
    head = model.head.tensors()
    assert head["counts"].sum() == pytest.approx(400, abs=0.1)
    assert head["mean"] == pytest.approx(rooted(X).mean(0), abs=1e-3)
    together = np.mean(adapt(vector_model, X).predict(X) == expected)
    assert np.mean(model.predict(X) == expected) > together - 0.05


def test_a_piece_with_a_new_unknown_thing_adds_a_cluster(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 2, 7], 60, shift=0.5, seed=1)
    new, _ = blobs([8], 60, shift=0.5, seed=2)
    model = adapt(vector_model, X)
    later = adapt(model, new, update=True)
    assert np.mean(later.predict(new) == "unknown") > 0.9
    assert len(later.head.tensors()["bias"]) > len(model.head.tensors()["bias"])
    assert np.mean(later.predict(X) == model.predict(X)) > 0.9


def test_only_an_adapted_model_can_be_updated(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 2, 7], 10, seed=1)
    for model, method in ((vector_model, "mixture"), (adapt(vector_model, X), "usfda")):
        with pytest.raises(InputError, match="--update"):
            adapt(model, X, update=True, method=method)  # type: ignore[arg-type]


@settings(max_examples=40)
@given(st.integers(2, 30), st.integers(0, 8), st.integers(0, 10**6))
def test_every_group_of_the_summary_has_two_images_behind_it(singles: int, groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = singles + groups
    z = unit(rng.normal(size=(n, 5)))
    behind = np.concatenate([np.ones(singles), rng.integers(2, 9, groups)])
    component = rng.integers(0, 6, n)
    means, counts = make_coreset(z, WeightedSamples(z, behind, behind), component, 0)
    assert counts.min() >= 2
    assert counts.sum() == pytest.approx(behind.sum())
    assert means.T @ counts == pytest.approx(z.T @ behind, abs=1e-3)
    assert not any(np.allclose(mean, z[i], atol=1e-6) for mean in means for i in range(singles))


@pytest.mark.parametrize("method", ["mixture", "usfda"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1.0])
def test_rejections_can_be_bounded(vector_model: Model, method: Any, share: float, tmp_path: Path) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=0.5, seed=1)
    few: dict[str, Any] = {"settings": {"steps": 20}} if method == "usfda" else {}
    adapted = adapt(vector_model, X, method=method, reject_at_most=share, **few)
    rejected = np.mean(adapted.predict(X) == "unknown")
    free = np.mean(adapt(vector_model, X, method=method, **few).predict(X) == "unknown")
    assert rejected <= share
    assert rejected == pytest.approx(min(share, free), abs=0.01)
    assert adapted.deployment["unknown_share"] == pytest.approx(100 * rejected, abs=0.01)
    adapted.save(tmp_path / "m.usfda")
    assert np.mean(load(tmp_path / "m.usfda").predict(X) == "unknown") == rejected
    with pytest.raises(InputError, match="share"):
        adapt(vector_model, X, reject_at_most=3)


def test_what_is_saved_does_not_tell_who_was_left_out(vector_model: Model) -> None:
    """Fault: the mean was of all samples and the summary of those drawn; their difference was the one left out."""
    X, _ = blobs([0, 1, 2, 7, 8], 20, shift=0.5, seed=1)
    saved = adapt(vector_model, X, settings={"most": len(X) - 1}).head.tensors()
    of_groups = saved["counts"] @ saved["coreset"] / saved["counts"].sum()
    assert saved["mean"] == pytest.approx(of_groups, abs=1e-4)


def test_many_copies_of_an_image_weigh_as_one(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 7], 2, seed=1)
    lone = blobs([8], 1, seed=3)[0]
    target = np.concatenate([X, np.repeat(lone, 400, 0)])
    adapted = adapt(vector_model, target)
    assert adapted.head.name == "mixture"
    assert nearest_single_sample(adapted, target) < 0.999
    assert adapted.head.tensors()["counts"].sum() == pytest.approx(len(target), rel=1e-4)


def test_an_update_by_one_image_changes_nothing(vector_model: Model, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: the difference of the two files was that image's vector."""
    X, _ = blobs([0, 1, 2, 7, 8], 20, shift=0.5, seed=1)
    adapted = adapt(vector_model, X)
    caplog.clear()
    later = adapt(adapted, np.repeat(X[:1], 3, 0), update=True)
    assert later.head is adapted.head
    assert caplog.messages == [text.one_sample(update=True)]


def test_an_update_finds_images_that_come_again(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 20, shift=0.5, seed=1)
    adapted = adapt(vector_model, X[::2])
    later = adapt(adapted, X[1::2], update=True)
    assert later.findings is not None
    assert later.findings.repeated == 0
    for batch in (X, X[1::2]):
        again = adapt(later, batch, update=True).findings
        assert again is not None
        assert again.repeated > 0


def test_an_update_counts_the_labels_that_it_changes(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 2, 7], 60, shift=0.5, seed=1)
    new, _ = blobs([2, 8], 30, shift=0.5, seed=2)
    model = adapt(vector_model, X)
    later = adapt(model, new, update=True)
    assert later.findings is not None
    assert later.findings.relabelled == np.sum(model.predict(new) != later.predict(new))
    assert model.findings is not None
    assert model.findings.relabelled is None


def test_an_update_that_is_expected_to_be_worse_keeps_what_was_there(vector_model: Model, pessimist: Path) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 20, shift=0.5, seed=1)
    adapted = adapt(vector_model, X[::2])
    later = adapt(adapted, X[1::2], update=True, settings={"weights": str(pessimist)})
    assert later.head is adapted.head
    assert later.deployment["check"]["verdict"] == "kept"
    assert adapt(later, X[1::2], update=True).head.name == "mixture"


def test_an_update_keeps_strictness_and_bound(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 20, shift=0.5, seed=1)
    strict = adapt(vector_model, X[::2], strictness=0.2)
    assert adapt(strict, X[1::2], update=True).strictness == 0.2
    assert adapt(strict, X[1::2], update=True, strictness=0.4).strictness == 0.4
    bounded = adapt(adapt(vector_model, X[::2], reject_at_most=0.1), X[1::2], update=True)
    assert np.mean(bounded.predict(X[1::2]) == "unknown") <= 0.1
    assert bounded.deployment["reject_at_most"] == 10


def test_bounded_rejections_are_the_same_for_samples_alone(vector_model: Model) -> None:
    """Fault: the line was the score of a sample, which is rounded in another way when it is decided alone."""
    X, _ = blobs([0, 1, 2, 7, 8], 60, shift=0.5, seed=1)
    adapted = adapt(vector_model, X, reject_at_most=0.2)
    assert [adapted.predict(row[None])[0] for row in X] == adapted.predict(X).tolist()
