import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import QUICK, blobs
from scipy.stats import multivariate_normal
from torch.nn import functional

from usfda import InputError, ProcurementSettings, procure
from usfda.data import Samples
from usfda.negatives import latent_negatives
from usfda.networks import D, learnable, make_f, make_g
from usfda.priors import RIDGE, ClassPriors
from usfda.procurement import Prepared, batches, l_p, split, train_source


def test_learnable_parameters_are_the_papers() -> None:
    f, g, d = make_f(2048), make_g(2048), D(20, 190)
    assert round(learnable(f, g, d) / 1e6, 1) == 11.1
    assert round(learnable(f) / 1e6, 1) == 3.5


def test_priors_against_scipy() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 5))
    y = np.repeat([0, 1, 2], 20)
    priors = ClassPriors(torch.from_numpy(u), torch.from_numpy(y), 3)
    for c in range(3):
        covariance = np.cov(u[y == c].T) + RIDGE * np.eye(5)
        expected = multivariate_normal(u[y == c].mean(0), covariance).logpdf(u)
        assert priors.log_density(torch.from_numpy(u))[:, c].numpy() == pytest.approx(expected)


def test_prior_samples_have_the_classes_mean_and_covariance() -> None:
    rng = np.random.default_rng(0)
    u = torch.from_numpy(rng.normal(size=(100, 3)) @ np.diag([1.0, 2.0, 0.5]) + [1, 2, 3])
    priors = ClassPriors(u, torch.zeros(100, dtype=torch.long), 1)
    drawn = priors.sample(torch.zeros(40000, dtype=torch.long), torch.Generator().manual_seed(0)).numpy()
    assert drawn.mean(0) == pytest.approx(u.mean(0).numpy(), abs=0.05)
    assert np.cov(drawn.T) == pytest.approx(np.cov(u.T) + RIDGE * np.eye(3), abs=0.1)


def test_a_class_of_one_sample_has_a_prior() -> None:
    priors = ClassPriors(torch.randn(3, 4), torch.tensor([0, 1, 1]), 2)
    assert torch.isfinite(priors.log_density(torch.randn(5, 4))).all()


def test_l_p_by_hand_and_finite_far_away() -> None:
    u = torch.tensor([[0.0, 0.0], [0.2, 0.0], [3.0, 3.0], [3.0, 3.2]])
    priors = ClassPriors(u, torch.tensor([0, 0, 1, 1]), 2)
    at = torch.tensor([[0.1, 0.0]])
    expected = -functional.log_softmax(priors.log_density(at)[0] / 2, 0)[0]
    assert l_p(at, torch.tensor([0]), priors).item() == pytest.approx(expected.item())
    assert torch.isfinite(l_p(torch.full((1, 2), 1e6), torch.tensor([1]), priors))


def test_split_holds_out_a_part_of_every_class() -> None:
    y = np.repeat([0, 1, 2], [2, 7, 100])
    train, out = split(y, 0.1)
    assert np.bincount(y[out]).tolist() == [1, 1, 10]
    assert sorted([*train, *out]) == list(range(109))
    assert len(split(y, 0)[1]) == 0
    assert np.bincount(y[split(y, 0.99)[0]]).tolist() == [1, 1, 1]


def test_batches_visit_everything_before_anything_twice() -> None:
    take = batches(np.arange(10), 5, np.random.default_rng(0))
    assert sorted([*take(), *take()]) == list(range(10))
    assert len(batches(np.arange(3), 5, np.random.default_rng(0))()) == 3


@pytest.mark.parametrize("kind", ["latent", "prior"])
def test_procurement_on_vectors_learns_the_source(kind: str) -> None:
    X, y = blobs([0, 1, 2, 3], 30)
    settings = ProcurementSettings(iterations=240, update_every=40)
    model = procure(X, y, negatives=kind, settings=settings)
    card = model.card["procurement"]
    assert card["negatives"]["classes"] == {"latent": 1, "prior": 6}[kind]
    assert card["validation"]["accuracy"] > 90
    assert np.mean(model.predict(X) == y) > 0.95
    counts = {name: len(values) for name, values in card["history"].items()}
    assert counts == {"L_CE": 70, "L_v": 70, "L_u": 50, "L_p": 50}  # 2 × 20 before the first priors, then 200 / 4
    for values in card["history"].values():
        assert np.isfinite(values).all()
    assert np.mean(card["history"]["L_CE"][-10:]) < card["history"]["L_CE"][0]
    assert np.mean(card["history"]["L_v"][-10:]) < card["history"]["L_v"][0]


def test_latent_negatives_lie_outside_where_new_samples_do_not() -> None:
    rng = torch.Generator().manual_seed(0)
    u = torch.randn(200, 256, generator=rng)
    y = torch.arange(200) % 2
    u[y == 1] += 2
    new = torch.randn(100, 256, generator=rng)
    priors = ClassPriors(u, y, 2)
    outside, zero = latent_negatives("latent", priors, u, y, 64, 600, rng)()
    assert len(outside) == 64
    assert not zero.any()

    def beyond(z: torch.Tensor) -> float:
        """Share of z beyond the farthest of the first class's own samples, by plain distance."""
        own = u[y == 0]
        return ((z - own.mean(0)).norm(dim=1) > (own - own.mean(0)).norm(dim=1).max()).float().mean().item()

    assert beyond(outside) > 0.9
    assert beyond(new) < 0.4


def test_prior_negatives_lie_between() -> None:
    rng = torch.Generator().manual_seed(0)
    u = torch.randn(200, 256, generator=rng)
    y = torch.arange(200) % 2
    u[y == 1] += 8
    between, pair = latent_negatives("prior", ClassPriors(u, y, 2), u, y, 64, 600, rng)()
    assert not pair.any()
    assert 2 < between.mean() < 6


def ready(X: np.ndarray, y: np.ndarray, X_n: np.ndarray, y_n: np.ndarray) -> Prepared:
    """Three classes, three negative ones, nothing held out."""
    return Prepared(Samples(X=X), np.arange(3), y, np.arange(len(y)), np.arange(0), "composite", 3, X_n, y_n)


def test_the_four_losses_take_turns_as_documented() -> None:
    """Ten iterations against another loop: what each loss is, what it trains, in which mode the priors are fitted."""
    X, names = blobs([0, 1, 2], 30)
    y = np.unique(names, return_inverse=True)[1]
    X_n, y_n = (X[:30] + X[30:60]) / 2, np.arange(30) % 3
    settings = ProcurementSettings(iterations=10, update_every=4, batch=20, negative_batch=10, lr=1e-3, alpha=0.3)
    trained = train_source(ready(X, y, X_n, y_n), settings, 5)

    torch.manual_seed(5)
    f, g, d = make_f(32), make_g(32), D(3, 3)
    rng, generator = np.random.default_rng(5), torch.Generator().manual_seed(5)
    positive, negative = batches(np.arange(90), 20, rng), batches(np.arange(30), 10, rng)
    adam = [torch.optim.Adam([p for m in ms for p in m.parameters()], 1e-3) for ms in ((f, d), (f, g), (f, g), (f,))]
    x, t = torch.from_numpy(X), torch.from_numpy(y)
    expected: list[list[float]] = [[], [], [], []]
    for i in range(10):
        if i in (4, 8):
            f.eval()
            with torch.no_grad():
                priors = ClassPriors(f(x), t, 3)
        f.train()
        turn = i % 2 if i < 4 else i % 4
        index = positive()
        v = x[index]
        if turn == 0:
            chosen = negative()
            p = d(f(torch.cat([v, torch.from_numpy(X_n[chosen])]))).log_softmax(1)
            loss = -p[torch.arange(20), t[index]].mean()
            loss = loss - 0.3 * p[torch.arange(20, 30), 3 + torch.from_numpy(y_n[chosen])].mean()
        elif turn == 1:
            loss = (v - g(f(v))).abs().mean()
        elif turn == 2:
            u_r = priors.sample(torch.randint(3, (20,), generator=generator), generator)
            loss = (u_r - f(g(u_r))).abs().mean()
        else:
            p = (priors.log_density(f(v)) / 256).log_softmax(1)
            loss = -p[torch.arange(20), t[index]].mean()
        adam[turn].zero_grad()
        loss.backward()
        adam[turn].step()
        expected[turn].append(loss.item())
    for found, values in zip(trained.history.values(), expected, strict=True):
        assert found == pytest.approx(values, rel=1e-3, abs=1e-5)
    # Adam turns rounding into steps where a gradient is next to nothing: on average the weights must agree.
    for ours, theirs in ((trained.f, f), (trained.d, d), (trained.g, g)):
        pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
        assert np.mean([(a - b).abs().mean().item() for a, b in pairs]) < 1e-4


def test_images_with_composites(photos: Path) -> None:
    model = procure(photos, backbone="pixels", settings=QUICK)
    card = model.card["procurement"]
    assert card["classes"] == {f"kind{i}": 12 for i in range(4)}
    assert card["negatives"] == {"kind": "composite", "classes": 6, "samples": 216}
    assert card["learnable_parameters"] == learnable(make_f(256), make_g(256), D(4, 6))
    assert set(card["history"]) == {"L_CE", "L_v", "L_u", "L_p"}
    assert model.card["backbone"]["name"] == "pixels"


def test_the_same_seed_gives_the_same_model(photos: Path) -> None:
    one, two, other = (procure(photos, backbone="pixels", settings=QUICK, seed=s) for s in (3, 3, 4))
    for name, tensor in one.f_s.state_dict().items():
        assert torch.equal(tensor, two.f_s.state_dict()[name])
    assert not torch.equal(one.d.source.weight, other.d.source.weight)


def test_negatives_raise_what_they_should() -> None:
    """With α = 0 the negatives teach nothing; with α > 0 they are told apart from the classes."""
    X, y = blobs([0, 1, 2], 40)
    targets = np.unique(y, return_inverse=True)[1]
    X_n = np.concatenate([(X[:40] + X[40:80]) / 2, (X[:40] + X[80:]) / 2, (X[40:80] + X[80:]) / 2])
    y_n = np.repeat([0, 1, 2], 40)

    def known(alpha: float) -> float:
        settings = ProcurementSettings(iterations=200, update_every=50, alpha=alpha)
        trained = train_source(ready(X, targets, X_n, y_n), settings, 0)
        with torch.no_grad():
            return trained.d(trained.f(torch.from_numpy(X_n))).softmax(1)[:, :3].sum(1).mean().item()

    assert known(1.0) < 0.2 < known(0.0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"iterations": 0}, "start at 1"),
        ({"negative_batch": 0}, "start at 1"),
        ({"holdout": 1.0}, "holdout"),
        ({"images_per_composite": 1}, "two images"),
        ({"lr": float("nan")}, "lr positive"),
    ],
)
def test_settings_are_checked(wrong: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ProcurementSettings(**wrong)


def test_wrong_sources(photos: Path) -> None:
    X, y = blobs([0, 1], 5)
    with pytest.raises(InputError, match="labels are needed"):
        procure(X)
    with pytest.raises(InputError, match="10 samples but 9 labels"):
        procure(X, y[:9])
    with pytest.raises(InputError, match="composites are made of images"):
        procure(X, y, negatives="composite")
    with pytest.raises(InputError, match="iterations must be more than update_every"):
        procure(X, y, settings=ProcurementSettings(iterations=50, update_every=50))
    with pytest.raises(InputError, match="called 'unknown'"):
        procure(X, np.where(y == "c0", "unknown", y))
    three = ProcurementSettings(images_per_composite=3)
    with pytest.raises(InputError, match="too few for composites of 3 images"):
        procure(photos, classes=["kind0", "kind1"], backbone="pixels", settings=three)


def test_the_card_is_json_and_names_no_place(photos: Path) -> None:
    model = procure(photos, backbone="pixels", settings=QUICK)
    text = json.dumps(model.card)
    assert str(photos) not in text
    assert "000.png" not in text
