import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usfda import (
    Config,
    Features,
    InputError,
    MixtureSettings,
    Model,
    ProcurementSettings,
    UsfdaSettings,
    adapt,
    procure,
)
from usfda.methods.heads import ClassMeansHead
from usfda.methods.usfda.adaptation import entropy, l_d1, l_d2, rescale, train_target
from usfda.methods.vendor import Vendor

logits = hnp.arrays(np.float32, (4, 5), elements=st.floats(-(2.0**127), 2.0**127, width=32))
weights = hnp.arrays(np.float32, 4, elements=st.floats(0, 1, width=32))


def test_losses_by_hand() -> None:
    p = np.asarray([[0.5, 0.2, 0.2, 0.1], [0.1, 0.1, 0.4, 0.4]])
    z = torch.from_numpy(np.log(p))
    w, w_ = torch.tensor([0.8, 0.1]), torch.tensor([0.3, 1.0])
    one = np.mean([-0.8 * math.log(0.7) - 0.3 * math.log(0.3), -0.1 * math.log(0.2) - 1.0 * math.log(0.8)])
    assert l_d1(z, w, w_, 2).item() == pytest.approx(one)

    def h(*q: float) -> float:
        return -sum(x / sum(q) * math.log(x / sum(q)) for x in q)

    two = np.mean([0.8 * h(0.5, 0.2) + 0.3 * h(0.2, 0.1), 0.1 * h(0.1, 0.1) + 1.0 * h(0.4, 0.4)])
    assert l_d2(z, w, w_, 2).item() == pytest.approx(two)


@given(logits, weights, weights, st.integers(1, 4))
@settings(deadline=None, max_examples=200)
def test_losses_and_gradients_are_finite_for_any_logits_and_weights(
    z: np.ndarray, w: np.ndarray, w_: np.ndarray, n_source: int
) -> None:
    logit = torch.from_numpy(z).requires_grad_()
    known, unknown = torch.from_numpy(w), torch.from_numpy(w_)
    loss = l_d1(logit, known, unknown, n_source) + 0.1 * l_d2(logit, known, unknown, n_source)
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert logit.grad is not None
    assert torch.isfinite(logit.grad).all()


@given(hnp.arrays(np.float32, (3, 6), elements=st.floats(-50, 50, width=32)))
@settings(deadline=None)
def test_entropy_is_between_none_and_uniform(z: np.ndarray) -> None:
    h = entropy(torch.from_numpy(z))
    assert (h >= -1e-5).all()
    assert (h <= math.log(6) + 1e-4).all()


def test_rescale() -> None:
    assert rescale(torch.linspace(1.5, 2.5, 21)).tolist() == pytest.approx(np.linspace(0, 1, 21).tolist(), abs=1e-6)
    assert rescale(torch.full((20,), 2.0)).tolist() == [0] * 20
    assert rescale(torch.tensor([1.0, math.e])).tolist() == pytest.approx([0, 1])
    assert rescale(torch.tensor([2.0, 2.01])).tolist() == pytest.approx([0.582, 0.588], abs=1e-3)


def test_only_f_t_learns_and_the_vendors_model_stays_as_it_is(vector_model: Model) -> None:
    before = {name: t.copy() for name, t in vector_model.vendor.tensors().items()}
    X, _ = blobs([0, 1, 7, 8], 40, shift=0.5, seed=1)
    adapted = adapt(vector_model, X, method="usfda", settings=UsfdaSettings(steps=12))
    assert not vector_model.adapted
    assert vector_model.head.name == "source-network"
    assert "deployment" in vector_model.card
    assert vector_model.card["deployment"] is None
    for name, tensor in before.items():
        assert np.array_equal(tensor, vector_model.vendor.tensors()[name])
        assert np.array_equal(tensor, adapted.vendor.tensors()[name])
    assert not np.array_equal(adapted.head.tensors()["0.weight"], before["F_s.0.weight"])
    card = adapted.deployment
    assert len(card["history"]["L_d1"]) == len(card["history"]["L_d2"]) == 12
    learnt = [t.size for name, t in before.items() if name.startswith("F_s.") and name.endswith(("weight", "bias"))]
    assert card["learnable_parameters"] == sum(learnt)


def test_batchnorm_follows_the_target_unless_it_is_tiny(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 7, 8], 40, shift=0.5, seed=1)
    before = vector_model.vendor.tensors()["F_s.3.running_mean"]
    for n, moves in ((160, True), (5, False)):
        adapted = adapt(vector_model, X[:n], method="usfda", settings=UsfdaSettings(steps=10))
        assert np.array_equal(adapted.head.tensors()["3.running_mean"], before) != moves


def test_it_rejects_what_is_new_and_keeps_what_is_known(vector_model: Model) -> None:
    X, y = blobs([0, 1, 2, 7, 8, 9], 40, shift=0.3, seed=1)
    adapted = adapt(vector_model, X, method="usfda")
    found = adapted.predict(X)
    new = np.isin(y, ["c7", "c8", "c9"])
    assert np.mean(found[new] == "unknown") > 0.9
    assert np.mean(found[~new] == y[~new]) > 0.7
    assert np.mean(vector_model.predict(X)[new] == "unknown") < np.mean(found[new] == "unknown")


@pytest.mark.parametrize("how", ["batch", "rank"])
def test_other_rescalings_of_the_similarity(vector_model: Model, how: Any) -> None:
    """Each gives other weights, and rejects what is new all the same."""
    X, y = blobs([0, 1, 2, 7, 8, 9], 40, shift=0.3, seed=1)
    usual = adapt(vector_model, X, method="usfda")
    adapted = adapt(vector_model, X, method="usfda", settings={"rescale": how})
    assert adapted.deployment["settings"]["rescale"] == how
    assert not np.array_equal(usual.decide(X).score, adapted.decide(X).score)
    new = np.isin(y, ["c7", "c8", "c9"])
    assert np.mean(adapted.predict(X)[new] == "unknown") > 0.8
    with pytest.raises(InputError, match="rescale is one of target, batch, rank"):
        UsfdaSettings(rescale="some" + how)


def test_it_is_over_when_few_samples_change_side(vector_model: Model) -> None:
    """Without labels: the share that changes side in twenty steps; what is learnt until then is the same."""
    X, _ = blobs([0, 1, 2, 7, 8, 9], 40, shift=0.3, seed=1)
    long, over = (
        adapt(vector_model, X, method="usfda", settings=UsfdaSettings(settled=share)) for share in (0.0, 0.99)
    )
    steps = [model.deployment["steps"] for model in (long, over)]
    assert steps == [200, 40]  # two looks, at 20 and at 40, are the fewest
    one, two = (model.deployment["history"]["L_d1"] for model in (long, over))
    assert one[:40] == two
    fixed = adapt(vector_model, X, method="usfda", settings=UsfdaSettings(steps=40, settled=0.0))
    assert np.array_equal(fixed.head.tensors()["0.weight"], over.head.tensors()["0.weight"])


def test_watching_changes_nothing(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 7], 30, seed=1)
    networks, seen = vector_model.vendor.networks, []
    assert networks is not None
    settings = UsfdaSettings(steps=4)
    alone, _ = train_target(networks, X, settings, 0, Config())
    watched, _ = train_target(
        networks, X, settings, 0, Config(), lambda step, head: seen.append((step, head.probability(X)))
    )
    assert np.array_equal(alone.tensors()["0.weight"], watched.tensors()["0.weight"])
    assert [step for step, _ in seen] == [1, 2, 3, 4]
    assert np.array_equal(seen[-1][1], watched.probability(X))
    assert not np.array_equal(seen[0][1], seen[-1][1])


def test_adapting_again_starts_from_the_vendors_part(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 7], 30, seed=1)
    few = UsfdaSettings(steps=6)
    once = adapt(vector_model, X, method="usfda", settings=few)
    other = adapt(vector_model, X + 0.5)
    twice = adapt(other, X, method="usfda", settings=few)
    assert (other.head.name, twice.head.name) == ("mixture", "usfda")
    assert "check" not in twice.deployment
    assert np.array_equal(once.head.tensors()["0.weight"], twice.head.tensors()["0.weight"])


@pytest.mark.parametrize("n", [1, 2, 5, 16, 64, 65])
def test_tiny_targets(vector_model: Model, n: int) -> None:
    X, _ = blobs([0, 8], 40, seed=1)
    adapted = adapt(vector_model, X[:n], method="usfda", settings=UsfdaSettings(steps=5))
    p = adapted.predict_proba(X)
    assert np.isfinite(p).all()
    assert p.sum(1) == pytest.approx(np.ones(len(X)), abs=1e-4)


def test_labels_of_the_target_are_never_seen(photos: Path, new_photos: Path, tmp_path: Path) -> None:
    """The same images in one folder without classes give the same model."""
    paths = sorted(new_photos.rglob("*.png"))
    for i, path in enumerate(paths):
        (tmp_path / f"{i:03d}.png").symlink_to(path)
    model = procure(
        photos, method="all", backbone="pixels", settings={"iterations": 12, "update_every": 4, "composites": 60}
    )
    for options in ({"method": "usfda", "settings": UsfdaSettings(steps=8)}, {"method": "mixture"}):
        calls: dict[str, Any] = dict(options)
        one, two = (adapt(model, place, **calls).head.tensors() for place in (new_photos, tmp_path))
        for name, tensor in one.items():
            assert np.array_equal(tensor, two[name])


def test_labels_of_vectors_are_never_seen_either(vector_model: Model) -> None:
    """What a target's labels say, or that it has any, changes nothing: neither the head nor the card."""
    X, y = blobs([0, 1, 7], 20, seed=1)
    right, wrong, none = (adapt(vector_model, Features(X, labels)) for labels in (y, y[::-1], None))
    for other in (wrong, none):
        for name, tensor in right.head.tensors().items():
            assert np.array_equal(tensor, other.head.tensors()[name])
        cards = [dict(model.deployment, seconds=None) for model in (right, other)]
        assert cards[0] == cards[1]


def test_wrong_calls(vector_model: Model) -> None:
    X, _ = blobs([0], 5)
    with pytest.raises(InputError, match="best"):
        adapt(vector_model, X, method="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="MixtureSettings"):
        adapt(vector_model, X, settings=UsfdaSettings())
    with pytest.raises(InputError, match="steps"):
        adapt(vector_model, X, settings={"steps": 3})
    with pytest.raises(InputError, match="strictness"):
        adapt(vector_model, X, strictness=1.5)
    with pytest.raises(InputError, match="dimensions"):
        adapt(vector_model, X[:, :31])
    with pytest.raises(InputError, match="vendor"):
        adapt("vendor.usfda", X)
    with pytest.raises(InputError, match="int"):
        adapt(3, X)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lr"):
        UsfdaSettings(lr=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"most": 1},
        {"neighbours": 0},
        {"rounds": -1},
        {"scale": 0.0},
        {"scale": math.nan},
        {"clusters": 0},
        {"outlier": -0.1},
        {"outlier": math.nan},
    ],
    ids=str,
)
def test_settings_of_usfda_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        MixtureSettings(**wrong)


def test_strictness_of_an_adaptation_is_kept_in_the_card(vector_model: Model) -> None:
    X, _ = blobs([0, 1, 7], 20, seed=1)
    adapted = adapt(vector_model, X, strictness=0.8)
    assert adapted.strictness == adapted.deployment["strictness"] == 0.8
    assert vector_model.strictness == 0.5
    assert np.array_equal(adapted.predict(X), adapted.predict(X, 0.8))


def test_the_source_may_be_of_two_classes() -> None:
    X, y = blobs([0, 1], 10)
    few = ProcurementSettings(iterations=8, update_every=4)
    for method in ("mixture", "usfda"):
        call: dict[str, Any] = {"method": method}
        steps: dict[str, Any] = {"settings": {"steps": 4}} if method == "usfda" else {}
        adapted = adapt(procure(X, y, method="all", settings=few), X[:8], **call, **steps)
        assert adapted.predict_proba(X).shape == (20, 3)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", ["whitener", "overall_mean", "means"])
def test_finite_but_absurd_numbers_of_a_stranger_are_one_line(name: str, private: bool, tmp_path: Path) -> None:
    X, y = blobs([0, 1, 2], 30)
    model = procure(X, y, method="mixture", private=private)
    class_statistics = model.vendor.class_statistics
    assert class_statistics is not None
    class_statistics = replace(class_statistics, **{name: np.full_like(getattr(class_statistics, name), 3e38)})
    Model(
        model.source_classes, Vendor(None, class_statistics), ClassMeansHead(class_statistics), None, model.card
    ).save(tmp_path / "absurd.usfda")
    with pytest.raises(InputError, match="finite"):
        adapt(tmp_path / "absurd.usfda", X)
