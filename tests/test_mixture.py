import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st

from usfda import InputError, adapt, load
from usfda.checks import check, consistency, describe
from usfda.cli import main
from usfda.geometry import domain_mean, fit_geometry, rooted
from usfda.metrics import one_shot
from usfda.mixture import MOST, Graph, components, fit_mixture, neighbours, settle, two_groups


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_geometry_against_numpy() -> None:
    """W whitens the shrunk covariance within the classes, P are the class means, cohesion leaves the sample out."""
    X, names = blobs([0, 1, 2], 7, d=5)
    y = np.unique(names, return_inverse=True)[1]
    home = fit_geometry(X, y, 3)
    x = np.sign(X) * np.sqrt(np.abs(X))
    means = np.stack([x[y == c].mean(0) for c in range(3)])
    within = np.cov((x - means[y]).T, bias=True)
    sigma = 0.2 * within + 0.8 * np.trace(within) / 5 * np.eye(5)
    W = home.whitener.numpy()
    assert pytest.approx(np.linalg.inv(sigma), rel=1e-3, abs=1e-3) == W.T @ W
    z = unit((x - means.mean(0)) @ W.T)
    assert home.z(torch.from_numpy(X), torch.from_numpy(means.mean(0))).numpy() == pytest.approx(z, abs=1e-4)
    assert home.prototypes.numpy() == pytest.approx(unit(np.stack([z[y == c].mean(0) for c in range(3)])), abs=1e-4)
    others = [unit(z[(y == y[i]) & (np.arange(21) != i)].mean(0)[None])[0] @ z[i] for i in range(21)]
    assert float(home.cohesion) == pytest.approx(np.mean(others), abs=1e-4)


def test_geometry_takes_its_samples_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    X, names = blobs([0, 1], 40, d=6)
    y = np.unique(names, return_inverse=True)[1]
    whole, mean = fit_geometry(X, y, 2), domain_mean(X)
    monkeypatch.setattr("usfda.geometry.PIECE", 7)
    for name, tensor in fit_geometry(X, y, 2).state_dict().items():
        assert torch.allclose(tensor, whole.state_dict()[name], atol=1e-5)
    assert torch.allclose(domain_mean(X), mean, atol=1e-6)
    assert torch.allclose(mean, rooted(torch.from_numpy(X)).mean(0), atol=1e-5)


@pytest.mark.parametrize("samples", [1, 2])
def test_geometry_of_few_or_constant_samples_is_finite(samples: int) -> None:
    y = np.repeat([0, 1], samples)
    for X in (np.zeros((2 * samples, 4)), np.eye(4)[: 2 * samples]):
        home = fit_geometry(X.astype(np.float32), y, 2)
        assert all(torch.isfinite(t).all() for t in home.state_dict().values())


def test_neighbours_are_mutual() -> None:
    rng = np.random.default_rng(0)
    z = unit(rng.normal(size=(60, 4))).astype(np.float32)
    graph = neighbours(z, 5)
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
    assert settle(z, graph) == pytest.approx(unit(by_hand), abs=1e-5)


def scores(known: int, unknown: int, classes: int = 8, seed: int = 0) -> np.ndarray:
    """Likeness as it looks in the target: null for all classes, and one high for the known."""
    rng = np.random.default_rng(seed)
    made = rng.normal(0, 0.08, (known + unknown, classes))
    made[np.arange(known), rng.integers(0, classes, known)] += rng.normal(0.55, 0.1, known)
    return made


@pytest.mark.parametrize(("known", "unknown"), [(300, 300), (300, 60), (60, 300)])
def test_the_two_groups_are_told_apart(known: int, unknown: int) -> None:
    found = two_groups(scores(known, unknown), 0.6).known
    assert np.mean(found[:known] > 0.5) > 0.9
    assert np.mean(found[known:] < 0.5) > 0.9


def test_a_single_group_is_seen_as_one() -> None:
    all_known, none_known = two_groups(scores(400, 0), 0.6), two_groups(scores(0, 400), 0.6)
    assert np.mean(all_known.known > 0.5) > 0.9
    assert np.mean(none_known.known > 0.5) < 0.05
    assert none_known.evidence < 0.3 < all_known.evidence


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(2, 6), st.floats(0, 1), st.integers(0, 99))
def test_groups_of_any_scores_are_probabilities_and_monotone(n: int, k: int, cohesion: float, seed: int) -> None:
    made = np.random.default_rng(seed).normal(0, 0.3, (n, k))
    found = two_groups(made, cohesion).known
    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 1)).all()
    best, top = made.argmax(1), made.max(1)
    for c in range(k):  # among samples of one class, more alike is never less known
        order = np.argsort(top[best == c])
        assert (np.diff(found[best == c][order]) >= -1e-6).all()


def test_components_of_clear_groups() -> None:
    """Two classes present, one absent, two unknown clusters of the same size: the centres are the means."""
    eye = np.eye(5)
    v = np.repeat(eye[[0, 1, 3, 4]], 20, 0)
    known = np.repeat([1.0, 1.0, 0.0, 0.0], 20)
    centres, mass = components(v, v @ eye[:3].T, known, eye[:3], 0)
    assert mass.tolist() == [20, 20, 0, 20, 20]
    assert centres[:3] == pytest.approx(eye[:3])
    assert sorted(centres[3:].argmax(1).tolist()) == [3, 4]


TARGETS = {
    "open-partial": ([0, 1, 2, 7, 8, 9], 0.85),
    "partial": ([0, 1, 2], 0.85),
    "closed": ([0, 1, 2, 3, 4], 0.85),
    "nothing shared": ([6, 7, 8, 9], 0.85),
}


@pytest.mark.parametrize("gap", TARGETS)
def test_every_gap_of_shifted_blobs(vector_model, gap: str) -> None:
    classes, least = TARGETS[gap]
    X, y = blobs(classes, 40, shift=0.5, seed=1)
    adapted = adapt(vector_model, X)
    expected = np.where(np.isin(y, adapted.classes_), y, "unknown")
    assert np.mean(adapted.predict(X) == expected) > least


def test_it_is_inductive_and_survives_its_file(vector_model, tmp_path: Path) -> None:
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


def test_the_same_seed_gives_the_same_model_and_a_large_target_a_part_of_it(vector_model, monkeypatch) -> None:
    X, y = blobs([0, 1, 2, 7, 8], 60, shift=0.5, seed=1)
    one, two = adapt(vector_model, X, seed=3), adapt(vector_model, X, seed=3)
    assert torch.equal(one.mixture.centres, two.mixture.centres)
    assert len(X) < MOST
    monkeypatch.setattr("usfda.deployment.MOST", 100)
    part = adapt(vector_model, X, seed=3)
    assert not torch.equal(part.mixture.centres, one.mixture.centres)
    assert torch.allclose(part.mixture.mean, one.mixture.mean)  # of all samples
    assert np.mean(part.predict(X) == np.where(np.isin(y, part.classes_), y, "unknown")) > 0.85


def test_strictness_moves_from_never_to_readily(vector_model, tmp_path: Path) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 30, shift=1.0, seed=1)
    for method in ("usfda", "paper"):
        adapted = adapt(vector_model, X, method=method)
        shares = [np.mean(adapted.predict(X, s) == "unknown") for s in (0, 0.2, 0.5, 0.8, 1)]
        assert shares == sorted(shares)
        assert shares[0] == 0
        assert shares[-1] > shares[2] > 0
        assert shares[2] == np.mean(adapted.predict(X) == "unknown")
        lenient = adapt(vector_model, X, method=method, strictness=0.0)
        lenient.save(tmp_path / "m.usfda")
        assert "unknown" not in load(tmp_path / "m.usfda").predict(X)
    with pytest.raises(InputError, match="strictness"):
        adapted.predict(X, -0.1)


def test_unknown_samples_form_clusters_with_examples(vector_model) -> None:
    X, y = blobs([0, 1, 2, 7, 8], 40, shift=0.5, seed=1)
    adapted = adapt(vector_model, X)
    decided = adapted.decide(X)
    assert ((decided.cluster > 0) == ~decided.known).all()
    for cluster, names in adapted.examples.items():
        assert all(decided.cluster[int(name)] == cluster for name in names)
        assert len({y[int(name)] for name in names}) == 1
    sizes = adapted.card["deployment"]["check"]["clusters"]
    assert {c: len(names) for c, names in adapted.examples.items()} == {int(c): min(5, n) for c, n in sizes.items()}
    assert sizes == {str(c): int(np.sum(decided.cluster == c)) for c in np.unique(decided.cluster[~decided.known])}
    records = list(adapted.predictions(X))
    assert {r.cluster for r in records if r.label == "unknown"} == {int(c) for c in sizes}
    assert {r.cluster for r in records if r.label != "unknown"} == {None}


@pytest.fixture
def ring() -> Graph:
    z = unit(np.stack([np.cos(np.arange(40) / 6), np.sin(np.arange(40) / 6)], 1)).astype(np.float32)
    return neighbours(z, 5)


def test_consistency(ring: Graph) -> None:
    halves = np.repeat(["a", "b"], 20)
    mixed = np.tile(["a", "b"], 20)
    assert consistency(halves, ring) > 0.6 > 0 > consistency(mixed, ring)
    assert consistency(np.repeat("a", 40), ring) is None


def test_the_check_tells_better_from_worse(ring: Graph) -> None:
    halves, mixed = np.repeat(["a", "b"], 20), np.tile(["a", "b"], 20)
    p = np.full((40, 3), [0.5, 0.3, 0.2])
    for before, after, verdict in ((mixed, halves, "better"), (halves, mixed, "worse")):
        found = check(ring, before, after, p, ["a", "b"], 0.9)
        assert found["verdict"] == verdict
        assert found["unknown_estimate"] == pytest.approx(20)
        assert found["changed"] == 50
        assert any(verdict in line for line in describe({"check": found}))
    assert check(ring, halves, np.repeat("unknown", 40), p, ["a", "b"], 0.2)["verdict"] == "unclear"
    weak, strong = (check(ring, mixed, halves, p, ["a", "b"], e) for e in (0.2, 1.0))
    assert weak["weak"]
    assert not strong["weak"]
    assert weak["unknown_interval"] == [0, 100]
    assert strong["unknown_interval"][1] < 50
    assert check(ring, mixed, halves, np.tile([[0.8, 0.001, 0.2]], (40, 1)), ["a", "b"], 1.0)["absent"] == ["b"]


def test_a_harmful_adaptation_is_not_kept(vector_model, monkeypatch, tmp_path: Path) -> None:
    """Where the check says worse, the model decides as the source model does, and says so."""
    X, _ = blobs([0, 1, 2, 7], 30, seed=1)
    monkeypatch.setattr("usfda.deployment.fit_mixture", lambda *args: _shuffled(*args))
    adapted = adapt(vector_model, X)
    assert adapted.card["deployment"]["check"]["verdict"] == "worse"
    assert adapted.adapted
    assert (adapted.predict(X) == vector_model.predict(X)).all()
    assert "source model's decision was kept" in " ".join(describe(adapted.card["deployment"]))
    adapted.save(tmp_path / "m.usfda")
    assert load(tmp_path / "m.usfda").adapted


def _shuffled(*args):  # type: ignore[no-untyped-def]
    """A mixture whose centres mean nothing."""
    mixture, groups, graph = fit_mixture(*args)
    noise = torch.Generator().manual_seed(0)
    mixture.centres = torch.nn.functional.normalize(torch.randn(40, 32, generator=noise))
    mixture.bias = torch.zeros(40)
    return mixture, groups, graph


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_tiny_targets(vector_model, n: int) -> None:
    X, _ = blobs([0, 8], 40, seed=1)
    p = adapt(vector_model, X[:n]).predict_proba(X)
    assert np.isfinite(p).all()
    assert p.sum(1) == pytest.approx(np.ones(len(X)), abs=1e-4)


def test_predict_writes_clusters_and_takes_strictness(vector_model, tmp_path: Path, capsys) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 20, shift=0.5, seed=1)
    np.savez(tmp_path / "f.npz", X=X)
    adapt(vector_model, X).save(tmp_path / "m.usfda")
    call = ["predict", str(tmp_path / "m.usfda"), str(tmp_path / "f.npz"), "--quiet"]
    assert main([*call, "--format", "csv"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split(",")[:4] == ["path", "label", "cluster", "score"]
    assert all((row.split(",")[1] == "unknown") == bool(row.split(",")[2]) for row in rows)
    assert main([*call, "--strictness", "0"]) == 0
    assert "unknown" not in capsys.readouterr().out
    assert main([*call, "--strictness", "2"]) == 2
