import math
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import QUICK, blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usfda import DeploymentSettings, InputError, adapt, procure
from usfda.deployment import entropy, l_d1, l_d2, rescale

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
def test_losses_and_gradients_are_finite_for_any_logits_and_weights(z, w, w_, n_source) -> None:
    logit = torch.from_numpy(z).requires_grad_()
    w, w_ = torch.from_numpy(w), torch.from_numpy(w_)
    loss = l_d1(logit, w, w_, n_source) + 0.1 * l_d2(logit, w, w_, n_source)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logit.grad).all()


@given(hnp.arrays(np.float32, (3, 6), elements=st.floats(-50, 50, width=32)))
@settings(deadline=None)
def test_entropy_is_between_none_and_uniform(z) -> None:
    h = entropy(torch.from_numpy(z))
    assert (h >= -1e-5).all()
    assert (h <= math.log(6) + 1e-4).all()


def test_rescale() -> None:
    assert rescale(torch.linspace(1.5, 2.5, 21)).tolist() == pytest.approx(np.linspace(0, 1, 21).tolist(), abs=1e-6)
    assert rescale(torch.full((20,), 2.0)).tolist() == [0] * 20
    assert rescale(torch.tensor([1.0, math.e])).tolist() == pytest.approx([0, 1])
    assert rescale(torch.tensor([2.0, 2.01])).tolist() == pytest.approx([0.582, 0.588], abs=1e-3)


def test_only_f_t_learns_and_the_vendors_model_stays_as_it_is(vector_model) -> None:
    before = {name: t.clone() for name, t in vector_model.f_s.state_dict().items()}
    X, _ = blobs([0, 1, 7, 8], 40, shift=0.5, seed=1)
    adapted = adapt(vector_model, X, method="paper", settings=DeploymentSettings(steps=30))
    assert not vector_model.adapted
    for name, tensor in before.items():
        assert torch.equal(tensor, vector_model.f_s.state_dict()[name])
        assert torch.equal(tensor, adapted.f_s.state_dict()[name])
    assert not torch.equal(adapted.f_t.state_dict()["0.weight"], before["0.weight"])
    assert torch.equal(adapted.d.source.weight, vector_model.d.source.weight)
    card = adapted.card["deployment"]
    assert len(card["history"]["L_d1"]) == len(card["history"]["L_d2"]) == 30
    assert card["learnable_parameters"] == sum(p.numel() for p in vector_model.f_s.parameters())


def test_batchnorm_follows_the_target_unless_it_is_tiny(vector_model) -> None:
    X, _ = blobs([0, 1, 7, 8], 40, shift=0.5, seed=1)
    before = vector_model.f_s.state_dict()["3.running_mean"]
    for n, moves in ((160, True), (5, False)):
        adapted = adapt(vector_model, X[:n], method="paper", settings=DeploymentSettings(steps=10))
        assert torch.equal(adapted.f_t.state_dict()["3.running_mean"], before) != moves


def test_it_rejects_what_is_new_and_keeps_what_is_known(vector_model) -> None:
    X, y = blobs([0, 1, 2, 7, 8, 9], 40, shift=0.3, seed=1)
    adapted = adapt(vector_model, X, method="paper")
    found = adapted.predict(X)
    new = np.isin(y, ["c7", "c8", "c9"])
    assert np.mean(found[new] == "unknown") > 0.9
    assert np.mean(found[~new] == y[~new]) > 0.7
    assert np.mean(vector_model.predict(X)[new] == "unknown") < np.mean(found[new] == "unknown")


def test_adapting_again_starts_from_the_vendors_part(vector_model) -> None:
    X, _ = blobs([0, 1, 7], 30, seed=1)
    few = DeploymentSettings(steps=20)
    once = adapt(vector_model, X, method="paper", settings=few)
    other = adapt(vector_model, X[:40] + 1)
    twice = adapt(other, X, method="paper", settings=few)
    assert other.mixture is not None
    assert twice.mixture is None
    assert torch.equal(once.f_t.state_dict()["0.weight"], twice.f_t.state_dict()["0.weight"])


@pytest.mark.parametrize("n", [1, 2, 5, 16, 64, 65])
def test_tiny_targets(vector_model, n: int) -> None:
    X, _ = blobs([0, 8], 40, seed=1)
    adapted = adapt(vector_model, X[:n], method="paper", settings=DeploymentSettings(steps=20))
    p = adapted.predict_proba(X)
    assert np.isfinite(p).all()
    assert p.sum(1) == pytest.approx(np.ones(len(X)), abs=1e-4)


def test_labels_of_the_target_are_never_seen(photos: Path, new_photos: Path, tmp_path: Path) -> None:
    """The same images in one folder without classes give the same model."""
    paths = sorted(new_photos.rglob("*.png"))
    for i, path in enumerate(paths):
        (tmp_path / f"{i:03d}.png").symlink_to(path)
    model = procure(photos, backbone="pixels", settings=QUICK)
    few = DeploymentSettings(steps=15)
    one, two = (adapt(model, place, method="paper", settings=few) for place in (new_photos, tmp_path))
    for name, tensor in one.f_t.state_dict().items():
        assert torch.equal(tensor, two.f_t.state_dict()[name])
    one, two = (adapt(model, place) for place in (new_photos, tmp_path))
    for name, tensor in one.mixture.state_dict().items():
        assert torch.equal(tensor, two.mixture.state_dict()[name])


def test_wrong_calls(vector_model) -> None:
    X, _ = blobs([0], 5)
    with pytest.raises(InputError, match="no method 'best'"):
        adapt(vector_model, X, method="best")
    with pytest.raises(InputError, match="usfda has no settings"):
        adapt(vector_model, X, settings=DeploymentSettings())
    with pytest.raises(InputError, match="strictness is from 0"):
        adapt(vector_model, X, strictness=1.5)
    with pytest.raises(InputError, match="31 dimensions, the model takes 32"):
        adapt(vector_model, X[:, :31])
    with pytest.raises(InputError, match="lr positive"):
        DeploymentSettings(lr=0)
