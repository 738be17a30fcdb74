"""Every baseline against something other than itself: its loss by hand, a property, its known behaviour on blobs."""

from __future__ import annotations

import gc
import itertools
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import QUICK, budget
from sklearn.metrics.pairwise import rbf_kernel
from torch.nn import functional

from usfda import Config, Decision, Features
from usfda.errors import InputError
from usfda.experiments.baselines import BASELINES, baseline_version, get_baseline
from usfda.experiments.baselines.api import Baseline
from usfda.experiments.baselines.ati import ATI, assign, identity_map
from usfda.experiments.baselines.glc import GLC, count_classes, one_vs_all
from usfda.experiments.baselines.iwan import IWAN, importance
from usfda.experiments.baselines.lead import LEAD, known_space, pseudo_labels, unknown_part
from usfda.experiments.baselines.osbp import boundary_loss
from usfda.experiments.baselines.ovanet import one_vs_all_loss, open_entropy
from usfda.experiments.baselines.pada import class_weights
from usfda.experiments.baselines.rtn import WIDTHS, mmd
from usfda.experiments.baselines.shot import SHOT, entropy_threshold
from usfda.experiments.baselines.shot import pseudo_labels as shot_labels
from usfda.experiments.baselines.training import discriminator, domain_loss, normalised_entropy, reverse, warm_up
from usfda.experiments.baselines.uan import UAN, batch_weight, transferability
from usfda.features.store import clear_store, store_info
from usfda.metrics import score_decision

SOURCE_FREE = [name for name in BASELINES if get_baseline(name).source_free]
STEPS = 200  # enough for the known behaviour on blobs


def domain(classes: list[int], shift: float = 0.0, seed: int = 0, each: int = 40, d: int = 16) -> tuple[Any, Any]:
    """Blobs that overlap a little; the shift moves all of them in one direction."""
    centres = np.random.default_rng(99).normal(0, 1.5, (10, d))
    away = np.random.default_rng(5).normal(0, 1, d)
    y = np.repeat(classes, each)
    X = centres[y] + np.random.default_rng(seed).normal(0, 1, (len(y), d)) + shift * away / np.linalg.norm(away)
    return X.astype(np.float32), y


def source(classes: list[int], **kwargs: Any) -> Features:
    X, y = domain(classes, **kwargs)
    return Features(X, np.asarray([f"c{c}" for c in y]))


def adapted(baseline: Baseline, labelled: Features, X: np.ndarray) -> Baseline:
    baseline.learn(labelled)
    baseline.adapt(X, None if baseline.source_free else labelled)
    return baseline


def result(name: str, known: list[int], target: list[int], shift: float, seed: int = 0) -> dict[str, Any]:
    settings = {} if name in ("mixture", "usfda") else budget(name, STEPS)
    labelled, (X, y) = source(known), domain(target, shift, seed=1)
    decision = adapted(get_baseline(name)(seed, **settings), labelled, X).decide(X)
    return score_decision(np.asarray([f"c{c}" for c in y]), decision, labelled.classes)


def decisions(name: str, labelled: Features, X: np.ndarray) -> Decision:
    return adapted(get_baseline(name)(3, **QUICK[name]), labelled, X).decide(X)


@pytest.mark.parametrize("name", BASELINES)
def test_contract(name: str) -> None:
    """Learns, adapts, decides the same way twice; what it says of itself; what of a source it keeps."""
    kind = get_baseline(name)
    assert isinstance(kind.source_free, bool)
    assert kind.rejects
    assert kind.__doc__
    assert baseline_version(name) == kind.version >= 1
    with pytest.raises(InputError, match="no setting 'nothing'"):
        kind(nothing=1)
    labelled, (X, _) = source([0, 1, 2, 3], each=12), domain([0, 1, 8], 1.0, each=12)
    X.flags.writeable = False
    first, second = (decisions(name, labelled, X) for _ in range(2))
    assert first.best.shape == first.known.shape == first.score.shape == (36,)
    assert first.known.dtype == bool
    assert set(first.best) <= {0, 1, 2, 3}
    assert first.score.min() >= 0
    assert first.score.max() <= 1
    for part in ("best", "known", "score"):
        np.testing.assert_array_equal(getattr(first, part), getattr(second, part))
    baseline = adapted(kind(0, **QUICK[name]), labelled, X)
    assert baseline.parameters >= 0
    assert baseline.latent(X).shape[0] == 36
    assert isinstance(baseline.all_settings(), dict)
    assert (baseline.check() is not None) == (name == "mixture")


@pytest.mark.parametrize("name", SOURCE_FREE)
def test_source_free_keeps_no_source_sample(name: str) -> None:
    """After ``learn`` nobody holds the source, nothing in the baseline has a row for each of its samples, and spoiling
    the source changes no decision."""
    expected = decisions(name, source([0, 1, 2], each=37), domain([0, 1, 8], 1.0, each=10)[0])
    labelled = source([0, 1, 2], each=37)
    held = weakref.ref(labelled.X)
    baseline = get_baseline(name)(3, **QUICK[name])
    baseline.learn(labelled)
    np.asarray(labelled.X)[:] = np.nan
    del labelled
    gc.collect()
    assert held() is None
    assert not [array.shape for array in arrays(baseline, set()) if 111 in array.shape]
    X, _ = domain([0, 1, 8], 1.0, each=10)
    baseline.adapt(X, None)
    np.testing.assert_array_equal(baseline.decide(X).score, expected.score)


def arrays(value: Any, seen: set[int]) -> list[Any]:
    """All arrays and tensors that can be reached from an object."""
    if id(value) in seen or isinstance(value, type):
        return []
    seen.add(id(value))
    if isinstance(value, np.ndarray | torch.Tensor):
        return [value]
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list | tuple | set):
        inner = list(value)
    elif hasattr(value, "__dict__"):
        inner = list(vars(value).values())
    return [array for part in inner for array in arrays(part, seen)]


def test_arrays_are_found_wherever_a_system_might_hide_them() -> None:
    baseline = get_baseline("shot")(0)
    vars(baseline)["kept"] = {"deep": [(np.zeros((111, 2)),)]}
    assert [a.shape for a in arrays(baseline, set())] == [(111, 2)]


def test_reversal_turns_the_gradient_of_f_but_not_of_the_discriminator() -> None:
    torch.manual_seed(0)
    d = discriminator().eval()
    u = torch.linspace(-1, 1, 512).view(2, 256).requires_grad_()
    turned = reverse(u, 0.5)
    inputs = [u, next(d.parameters())]
    plain = torch.autograd.grad(domain_loss(d(u[:1]), d(u[1:])), inputs)
    reversed_ = torch.autograd.grad(domain_loss(d(turned[:1]), d(turned[1:])), inputs)
    torch.testing.assert_close(reversed_[0], -0.5 * plain[0])
    torch.testing.assert_close(reversed_[1], plain[1])


def test_domain_loss_by_hand() -> None:
    s, t = torch.tensor([[0.0], [2.0]]), torch.tensor([[-1.0]])
    plain = (np.log(2) + np.log1p(np.exp(-2))) / 2 + np.log1p(np.exp(-1))
    assert domain_loss(s, t).item() == pytest.approx(plain)
    weighted = (3 * np.log(2) + 0 * np.log1p(np.exp(-2))) / 2 + 2 * np.log1p(np.exp(-1))
    assert domain_loss(s, t, torch.tensor([3.0, 0.0]), torch.tensor([2.0])).item() == pytest.approx(weighted)
    assert warm_up(0) == 0
    assert warm_up(1) == pytest.approx(1, abs=1e-3)


def test_pada_forgets_absent_classes() -> None:
    p = torch.tensor([[0.9, 0.1, 0.0], [0.7, 0.1, 0.2], [0.8, 0.1, 0.1]])
    torch.testing.assert_close(class_weights(p), torch.tensor([1.0, 0.125, 0.125]))


def test_mmd_is_that_of_sklearns_kernels() -> None:
    rng = np.random.default_rng(0)
    u, p = rng.normal(size=(7, 3)), rng.dirichlet(np.ones(4), 7)
    k = np.ones((7, 7))
    for part in (u, p):
        distance = ((part[:, None] - part[None]) ** 2).sum(2)
        mean = distance.sum() / (7 * 6)
        k *= np.sum([rbf_kernel(part, gamma=1 / (w * mean)) for w in WIDTHS], axis=0)
    expected = k[:3, :3].mean() + k[3:, 3:].mean() - 2 * k[:3, 3:].mean()
    assert mmd(3, torch.from_numpy(u), torch.from_numpy(p)).item() == pytest.approx(expected)
    same = torch.from_numpy(np.concatenate([u, u]))
    assert mmd(7, same).item() == pytest.approx(0, abs=1e-12)


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=20))
def test_iwan_importance_has_mean_one_and_falls_with_the_source_likeness(logits: list[float]) -> None:
    w = importance(torch.tensor(logits, dtype=torch.float64)[:, None])
    assert w.mean().item() == pytest.approx(1)
    order = np.argsort(logits)
    assert (np.diff(w.numpy()[order]) <= 1e-12).all()


def test_iwan_weights_shared_source_classes_more() -> None:
    baseline, labelled = IWAN(steps=STEPS), source(list(range(8)))
    adapted(baseline, labelled, domain([0, 1, 2], 2.0, seed=1)[0])
    with torch.no_grad():
        w = importance(baseline.d(baseline.f_s(torch.from_numpy(np.asarray(labelled.X))))).numpy()
    assert w[labelled.y < 3].mean() > 1.2 * w[labelled.y >= 3].mean()


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.1, 1.2))
def test_ati_assigns_as_trying_all_assignments_does(seed: int, outlier: float) -> None:
    distance = np.random.default_rng(seed).random((4, 3))

    def cost(choice: tuple[int, ...]) -> float:
        return sum(outlier if c < 0 else distance[t, c] for t, c in enumerate(choice))

    every = [c for c in itertools.product(range(-1, 3), repeat=4) if {0, 1, 2} <= set(c)]
    found = assign(distance, outlier)
    assert {0, 1, 2} <= set(found)
    assert cost(tuple(found)) == pytest.approx(min(map(cost, every)))


def test_ati_maps_means_onto_the_target_and_leaves_the_rest() -> None:
    S, T = np.eye(5)[:2], np.random.default_rng(0).normal(size=(2, 5))
    W = identity_map(S, T)
    np.testing.assert_allclose(S @ W.T, T, atol=1e-12)
    np.testing.assert_allclose(np.eye(5)[2:] @ W.T, np.eye(5)[2:], atol=1e-12)


def test_ati_follows_a_shift_that_the_source_alone_does_not() -> None:
    known = list(range(8))
    ati, alone = (result(name, known, known, 6.0)["closed_accuracy"] for name in ("ati", "source-only"))
    assert ati > alone + 5


def test_ati_serves_fewer_samples_than_classes() -> None:
    labelled, (X, _) = source([0, 1, 2, 3]), domain([0], each=2)
    baseline = ATI()
    baseline.adapt(X, labelled)
    assert len(baseline.decide(X).best) == 2


def test_osbp_loss_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]])
    p = np.exp([0.5, 3.0]) / np.exp(logits.numpy()).sum(1)
    assert boundary_loss(logits).item() == pytest.approx(np.mean(-0.5 * np.log(p) - 0.5 * np.log(1 - p)), rel=1e-5)
    assert boundary_loss(torch.tensor([[0.0, 0.0, np.log(2)]])).item() == pytest.approx(np.log(2))  # p = ½, its least


def test_uan_weights_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    w = transferability(torch.tensor([[0.0], [np.log(3.0)]]), logits)
    p = 1 / (1 + np.exp(-10))
    h = -(p * np.log(p) + (1 - p) * np.log(1 - p)) / np.log(2)
    np.testing.assert_allclose(w, [0.5 - 1, 0.75 - h], rtol=1e-5)
    np.testing.assert_allclose(batch_weight(torch.tensor([1.0, 2.0, 5.0])), [0, 0.6, 2.4], rtol=1e-5)


def test_uan_weights_fall_where_nothing_is_shared() -> None:
    def mean_weight(target: list[int]) -> float:
        baseline, labelled = UAN(steps=STEPS), source([0, 1, 2, 3])
        X, _ = domain(target, 2.0, seed=1)
        baseline.adapt(X, labelled)
        return float(baseline.decide(X).score.mean())

    assert mean_weight([6, 7, 8, 9]) < mean_weight([0, 1, 2, 3]) - 0.1


def test_ovanet_losses_by_hand() -> None:
    o = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, -3.0]])
    hardest = [np.log1p(np.exp(0.5)), np.log1p(np.exp(0.0))]  # class 2 beside 0, class 0 beside 1
    right = [np.log1p(np.exp(-2.0)), np.log1p(np.exp(-1.0))]
    expected = np.mean(np.add(hardest, right)) / 2
    assert one_vs_all_loss(o, torch.tensor([0, 1])).item() == pytest.approx(expected, rel=1e-5)
    assert open_entropy(torch.zeros(3, 4)).item() == pytest.approx(np.log(2))
    sure = torch.tensor([[30.0, -30.0]], requires_grad=True)
    assert open_entropy(sure).item() == pytest.approx(0, abs=1e-6)
    assert torch.isfinite(torch.autograd.grad(open_entropy(sure), sure)[0]).all()


def test_entropy_stays_in_bounds_and_has_a_gradient_everywhere() -> None:
    logits = torch.tensor([[200.0, 0.0, -200.0], [0.0, 0.0, 0.0]], requires_grad=True)
    h = normalised_entropy(logits.softmax(1))
    np.testing.assert_allclose(h.detach(), [0, 1], atol=1e-6)
    assert normalised_entropy(torch.full((1, 31), 1 / 31)).item() <= 1
    assert torch.isfinite(torch.autograd.grad(h.sum(), logits)[0]).all()


def test_shot_by_hand() -> None:
    assert 0.3 < entropy_threshold(np.asarray([0.1, 0.12, 0.11, 0.9, 0.88])) < 0.7
    u = np.asarray([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.95, 0.05]])
    p = np.asarray([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.45, 0.55]])
    assert shot_labels(u, p).tolist() == [0, 0, 1, 1, 0]  # the last lies with the first two, whatever the head says
    baseline = SHOT()
    baseline.label = torch.tensor([1, -1, 0])
    logits = torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]])
    q = logits.softmax(1).numpy()
    h = -(q * np.log(q)).sum(1)
    mean = q.mean(0)
    expected = (h[0] + h[2]) / 2 + (mean * np.log(mean)).sum() - 0.3 * (np.log(q[0, 1]) + np.log(q[2, 0])) / 2
    assert baseline.loss(torch.arange(3), logits, logits).item() == pytest.approx(expected, rel=1e-5)


def clusters(centres: Any, each: int, noise: float = 0.05) -> torch.Tensor:
    rng = np.random.default_rng(0)
    points = np.repeat(np.asarray(centres, float), each, 0)
    return functional.normalize(torch.from_numpy(points + rng.normal(0, noise, points.shape)).float())


def test_glc_labels_what_is_near_a_class_and_not_what_is_near_another_cluster() -> None:
    u = clusters(np.eye(8)[:6], 20)
    p = torch.full((120, 3), 0.02)
    for c in range(3):
        p[20 * c : 20 * c + 20, c] = 0.96
    p[60:] = torch.tensor([0.4, 0.3, 0.3])
    share = one_vs_all(u, p, 6, 0.75)
    assert share[:60].argmax(1).tolist() == np.repeat([0, 1, 2], 20).tolist()
    assert (share[:60].amax(1) == 1).all()
    torch.testing.assert_close(share[60:], torch.full((60, 3), 1 / 3))
    assert count_classes(u, 3, (0.5, 1, 2, 3), np.random.default_rng(0)) == 6


def test_consensus_is_cross_entropy_with_the_nearest_in_the_bank() -> None:
    baseline = GLC()
    baseline.u = functional.normalize(torch.tensor([[1.0, 0], [1, 0.1], [1, 0.2], [1, 0.3], [1, 0.4], [-1, 0]]))
    baseline.p = torch.tensor([[1.0, 0], [0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4], [0, 1]])
    logits = torch.tensor([[1.0, 0.0]])
    q = logits.softmax(1)[0].numpy()
    expected = -(0.7 * np.log(q[0]) + 0.3 * np.log(q[1]))
    assert baseline.consensus(torch.tensor([0]), torch.tensor([[2.0, 0.0]]), logits).item() == pytest.approx(expected)
    torch.testing.assert_close(baseline.p[0], torch.from_numpy(q))


def test_glc_and_lead_train_by_epochs() -> None:
    """As published: a small set has fewer steps than a large one, and F is not trained on it for too long."""
    assert [GLC().steps(n) for n in (10, 330, 10**6)] == [50, 250, 2500]
    assert LEAD(epochs=2, batch=10).steps(57) == 10


def test_lead_splits_u_by_the_space_of_the_head() -> None:
    rng = np.random.default_rng(0)
    head = torch.from_numpy(rng.normal(size=(3, 256))).float()
    u = functional.normalize(torch.from_numpy(rng.normal(size=(5, 256))).float())
    fitted = np.linalg.lstsq(head.T.numpy(), u.T.numpy())[0]
    rest = np.linalg.norm(u.T.numpy() - head.T.numpy() @ fitted, axis=0)
    np.testing.assert_allclose(unknown_part(u, known_space(head)), rest, atol=1e-5)
    inside = functional.normalize(head)
    np.testing.assert_allclose(unknown_part(inside, known_space(head)), 0, atol=2e-3)


def test_lead_tells_unknown_by_the_part_outside() -> None:
    head = torch.eye(256)[:3]
    u = clusters(np.eye(256)[:6], 20, noise=0.01)
    p = torch.full((120, 3), 0.02)
    for c in range(3):
        p[20 * c : 20 * c + 20, c] = 0.96
    p[60:] = 1 / 3
    found = pseudo_labels(u, p, head, known_space(head), 6)
    assert found.unknown.tolist() == [False] * 60 + [True] * 60
    assert found.share[:60].argmax(1).tolist() == np.repeat([0, 1, 2], 20).tolist()
    assert found.weight.min() >= 0
    assert found.weight.max() <= 1


def test_pada_beats_dann_where_classes_are_missing() -> None:
    pada, dann = (result(name, list(range(8)), [0, 1, 2], 4.0) for name in ("pada", "dann"))
    assert pada["closed_accuracy"] > dann["closed_accuracy"] + 3


def test_rtn_follows_a_shift_where_all_classes_are_shared_and_is_harmed_where_not() -> None:
    known = list(range(8))
    rtn, alone = (result(name, known, known, 8.0)["closed_accuracy"] for name in ("rtn", "source-only"))
    assert rtn > alone + 10
    assert result("rtn", known, [0, 1, 2], 8.0)["closed_accuracy"] < rtn - 10


def test_osbp_and_uan_reject_and_dann_hardly_does() -> None:
    rejected = {
        name: result(name, list(range(6)), [0, 1, 2, 7, 8, 9], 2.0)["t_unk"] for name in ("osbp", "uan", "dann")
    }
    assert min(rejected["osbp"], rejected["uan"]) > rejected["dann"] + 15


@pytest.mark.parametrize("name", ["glc", "lead", "mixture"])
def test_universal_baselines_tell_known_from_unknown(name: str) -> None:
    found = result(name, list(range(6)), [0, 1, 2, 7, 8, 9], 2.0)
    assert found["h_score"] > 60
    assert found["auroc"] > 70


def test_divergence_is_an_error() -> None:
    layer = torch.nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="diverged: the loss is not finite at step"):
        SHOT().optimise([layer], lambda _: layer.weight.pow(4).sum(), rate=1e6)


def test_the_vendors_model_is_procured_once(cache: Path) -> None:
    """For one source, seed and way; what comes from the store decides the same; a damaged file is made anew."""
    labelled, (X, _) = source([0, 1, 2, 3]), domain([0, 1, 8], 1.0)
    procurement = {"iterations": 12, "update_every": 5}

    def learn(name: str, given: Features = labelled, seed: int = 0, **settings: Any) -> Any:
        settings["procurement"] = {**procurement, **settings.get("procurement", {})}
        baseline = get_baseline(name)(seed, Config(cache=cache), **settings)
        baseline.learn(given)
        return baseline

    def kept() -> int:
        return int(store_info(cache)["models"]["count"])

    first, again = learn("usfda"), learn("usfda")
    assert again.learning_seconds == first.learning_seconds > 0
    assert kept() == 1
    np.testing.assert_array_equal(first.model.decide(X).score, again.model.decide(X).score)
    learn("usfda-b")  # asks for what features have by default, by name
    learn("usfda", deployment={"beta": 0.5})
    assert kept() == 2
    others = [
        learn("usfda", seed=1),
        learn("usfda", procurement={"alpha": 0.5}),
        learn("usfda", procurement={"max_negative_classes": 3}),
        learn("usfda", replace(labelled, X=np.asarray(labelled.X) + 1)),
    ]
    assert first.learning_seconds not in [other.learning_seconds for other in others]
    assert kept() == 2 + len(others)
    for file in (cache / "vendors").glob("*.usfda"):
        file.write_bytes(file.read_bytes()[:1000])
    np.testing.assert_array_equal(learn("usfda").model.decide(X).score, first.model.decide(X).score)
    assert learn("usfda").learning_seconds != first.learning_seconds
    learn("mixture")  # takes no longer to make than to read
    assert kept() == 6
    clear_store(cache)
    assert kept() == 0
    baseline = get_baseline("usfda")(0, Config(cache=None), procurement=procurement)
    baseline.learn(labelled)
    assert kept() == 0
