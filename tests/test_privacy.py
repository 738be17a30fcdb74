"""What a model file tells about its source: the attacks find what can be found, and privacy keeps its word."""

import math
from pathlib import Path

import numpy as np
import pytest
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from typer.testing import CliRunner

from usfda import InputError, Model, adapt, load, procure
from usfda.cli.main import app
from usfda.methods.membership import auc, best_attack, scores
from usfda.methods.mixture.class_statistics import fit_without_quantile
from usfda.methods.mixture.classifier import fit_classifier
from usfda.methods.privacy import (
    WEIGHTS,
    PrivacySettings,
    attack_bound,
    fit_noisy_class_statistics,
    fit_private_class_statistics,
    noise_level,
    secure_normal,
    sensitivity,
    sum_up,
)
from usfda.methods.vendor import Vendor
from usfda.text.procurement import leaks, privacy_sentence

D = 96  # dimensions, more than there are images


def halves(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two halves of the same three classes: vectors, classes, and whether each is of the first half."""
    X, names = blobs([0, 1, 2], 40, seed=seed, d=D)
    return X, np.unique(names, return_inverse=True)[1], np.arange(len(X)) % 2 == 0


def test_with_fewer_images_than_dimensions_the_covariance_names_every_one() -> None:
    X, y, member = halves()
    name, found = best_attack(Vendor(None, fit_without_quantile(X[member], y[member], 3)), X, y, member)
    assert name.startswith("covariance")
    assert found == 1


def test_the_classifiers_mean_answers_leak_membership_where_a_class_has_two_images() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, D)).astype(np.float32), np.repeat(np.arange(20), 4)
    member = np.arange(80) % 4 < 2
    weight, bias = rng.normal(size=(12, D)).astype(np.float32), np.zeros(12, np.float32)
    score = scores(Vendor(None, None, fit_classifier(weight, bias, X[member], y[member], 20)), X, y)["classifier"]
    assert auc(score[member], score[~member]) > 0.9


def test_a_private_geometry_tells_much_less_and_a_noisy_one_next_to_nothing() -> None:
    private, noisy = [], []
    for seed in range(6):
        X, y, member = halves(seed)
        settings = PrivacySettings(directions=1)
        class_statistics = fit_private_class_statistics(X[member], y[member], 3, settings)
        private.append(best_attack(Vendor(None, class_statistics), X, y, member)[1])
        rng = np.random.default_rng(seed)
        class_statistics, _ = fit_noisy_class_statistics(X[member], y[member], 3, settings, 1, rng.standard_normal)
        noisy.append(best_attack(Vendor(None, class_statistics), X, y, member)[1])
    assert np.mean(private) < 0.85
    assert np.mean(noisy) < 0.6


def test_the_area_under_the_curve() -> None:
    assert auc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1
    assert auc(np.array([1.0, 1.0]), np.array([1.0])) == 0.5
    assert auc(np.array([0.0, 2.0]), np.array([1.0])) == 0.5


def test_networks_that_have_learnt_their_images_by_heart_are_told_by_their_confidence() -> None:
    X, names = np.random.default_rng(0).normal(size=(40, 48)).astype(np.float32), np.tile(["a", "b"], 20)
    member = np.arange(40) < 20
    # Labels are chance: whatever is right was learnt by heart.
    learnt = {"iterations": 150, "update_every": 40, "holdout": 0.0, "lr": 1e-3}
    model = procure(X[member], names[member], method="usfda", settings=learnt)
    score = scores(model.vendor, X, np.unique(names, return_inverse=True)[1])["networks"]
    assert auc(score[member], score[~member]) > 0.8


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(2, 9), st.floats(-20, 20))
@settings(max_examples=200)
def test_one_image_changes_the_sums_by_no_more_than_stated(seed: int, n: int, d: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.standard_t(2, (n, d)) * 10.0 ** rng.uniform(-6, 6, (n, 1))).astype(np.float32)
    X[0] *= 2.0**size
    X[rng.random((n, d)) < 0.2] = 0
    y = rng.integers(0, 3, n)
    with_it, without_it = sum_up(X, y, 3).weighted(), sum_up(X[1:], y[1:], 3).weighted()
    assert np.linalg.norm(with_it - without_it) <= sensitivity() * (1 + 1e-9)


def test_an_image_far_from_the_usual_length_changes_the_sums_by_just_that() -> None:
    X, y = np.array([[1e8, 1e8], [1.0, 2.0]], np.float32), np.array([0, 1])
    moved = np.linalg.norm(sum_up(X, y, 2).weighted() - sum_up(X[1:], y[1:], 2).weighted())
    assert moved == pytest.approx(sensitivity())


def test_noise_has_the_stated_variance_on_every_sum() -> None:
    sums = sum_up(*blobs_of_two(), 2)
    rng = np.random.default_rng(0)
    drawn = np.stack([sums.noisy(3.0, rng.standard_normal).weighted() - sums.weighted() for _ in range(4000)])
    assert drawn.mean(0) == pytest.approx(0, abs=0.25)
    assert drawn.std(0) == pytest.approx(np.full(drawn.shape[1], 3.0), rel=0.08)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(drawn.shape[1])).max() < 0.1
    noisy = sums.noisy(3.0)
    assert (noisy.second == noisy.second.T).all()


def blobs_of_two() -> tuple[np.ndarray, np.ndarray]:
    X, names = blobs([0, 1], 10, d=4)
    return X, np.unique(names, return_inverse=True)[1]


@pytest.mark.parametrize("epsilon", [0.1, 1, 5, 30])
def test_the_noise_is_what_epsilon_and_delta_ask_for(epsilon: float) -> None:
    """Against the definition: δ is the most by which one Gaussian's mass exceeds e^ε times the other's."""
    mu = sensitivity() / noise_level(epsilon, 1e-5)
    line = epsilon / mu + mu / 2  # where the ratio of the densities is e^ε

    def beyond(t: float) -> float:
        return float(norm.pdf(t - mu) - math.exp(epsilon + norm.logpdf(t)))

    assert quad(beyond, line, line + 12, epsabs=1e-12)[0] == pytest.approx(1e-5, rel=1e-3)


def test_no_attack_on_two_gaussians_exceeds_the_bound() -> None:
    sigma = noise_level(3, 1e-5)
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(sensitivity(), sigma, 20000), rng.normal(0, sigma, 20000)
    assert auc(inside, outside) == pytest.approx(attack_bound(sigma), abs=0.01)


def test_the_noise_is_normal_and_another_one_in_every_run_whatever_the_seed() -> None:
    drawn = secure_normal(100_000)
    assert np.isfinite(drawn).all()
    assert drawn.mean() == pytest.approx(0, abs=0.02)
    assert np.quantile(drawn, norm.cdf([-2, -1, 0, 1, 2])) == pytest.approx(np.array([-2, -1, 0, 1, 2]), abs=0.06)
    X, y = blobs([0, 1, 2], 30)
    first, second = (procure(X, y, epsilon=5, seed=0) for _ in range(2))
    assert not np.allclose(prototypes(first), prototypes(second), atol=1e-3)
    assert (prototypes(procure(X, y, private=True)) == prototypes(procure(X, y, private=True))).all()


def prototypes(model: Model) -> np.ndarray:
    assert model.vendor.class_statistics is not None
    return model.vendor.class_statistics.means


def test_a_private_file_has_the_geometry_alone_and_works(tmp_path: Path) -> None:
    X, y = blobs([0, 1, 2, 3], 30)
    model = procure(X, y, private=True)
    assert {name.split(".")[0] for name in model.vendor.tensors()} == {"class_statistics"}
    model.save(tmp_path / "private.usfda")
    card = load(tmp_path / "private.usfda").card["procurement"]
    assert card["method"] == "mixture"
    assert card["privacy"]["private"] is True
    assert card["privacy"]["least_images"] == 10
    assert card["privacy"]["membership"]["members"] + card["privacy"]["membership"]["others"] == 120
    assert (card["validation"]["accuracy"] or 0) > 90
    X_target, y_target = blobs([0, 1, 5, 6], 30, shift=0.5, seed=1)
    adapted = adapt(tmp_path / "private.usfda", X_target)
    known = np.isin(y_target, ["c0", "c1"])
    assert np.mean(adapted.predict(X_target)[known] == y_target[known]) > 0.9


def test_a_file_with_noise_tells_nothing_that_is_not_noisy(tmp_path: Path) -> None:
    X, y = blobs([0, 1, 2, 3], 200)
    model = procure(X, y, epsilon=2)
    model.save(tmp_path / "noisy.usfda")
    model = load(tmp_path / "noisy.usfda")
    card = model.card["procurement"]
    assert card["privacy"]["noise"]["epsilon"] == 2
    assert card["privacy"]["noise"]["delta"] == 1e-5
    assert "membership" not in card["privacy"]
    assert card["validation"]["accuracy"] is None
    assert card["seconds"] == {}
    sizes = [card["classes"][f"c{c}"] for c in range(4)]
    assert sizes != [200] * 4
    assert sizes == pytest.approx([200] * 4, abs=6 * noise_level(2, 1e-5) / WEIGHTS["counts"])
    assert np.mean(model.predict(X) == y) > 0.9
    assert privacy_sentence(card["privacy"]).startswith("differentially private, ε = 2 with δ = 1e-05")


def test_a_class_with_too_few_images_is_named() -> None:
    X, y = blobs([0, 1, 2], 12)
    with pytest.raises(InputError, match="c1"):
        procure(np.delete(X, np.arange(12, 20), 0), np.delete(y, np.arange(12, 20)), private=True)
    procure(X, y, private=True, settings={"holdout": 0.3})


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan])
def test_an_epsilon_that_is_none_is_refused(epsilon: float) -> None:
    X, y = blobs([0, 1], 12)
    with pytest.raises(InputError, match="epsilon"):
        procure(X, y, epsilon=epsilon)


def test_method_paper_is_not_private() -> None:
    X, y = blobs([0, 1], 12)
    with pytest.raises(InputError, match="mixture"):
        procure(X, y, method="usfda", private=True)


def test_the_card_says_how_well_an_attack_on_this_very_model_does() -> None:
    X, y = blobs([0, 1, 2], 20, d=256)
    told = procure(X, y, method="mixture").card["procurement"]["privacy"]
    assert not told["private"]
    assert told["membership"]["auc"] == 1
    nothing_held_out = procure(X, y, method="mixture", settings={"holdout": 0.0}).card["procurement"]["privacy"]
    assert nothing_held_out == {"private": False, "least_images": 1}


def test_the_commands_and_old_files(tmp_path: Path, photos: Path) -> None:
    run = CliRunner().invoke
    file = str(tmp_path / "vendor.usfda")
    command = ["procure", str(photos), "--backbone", "pixels", "-o", file]
    for more, private in (([], False), (["--private"], True), (["--epsilon", "8"], True), (["--epsilon", "30"], True)):
        ran = run(app, [*command, *more])
        assert ran.exit_code == 0
        card = load(file).card["procurement"]
        assert card["privacy"]["private"] == private
        assert all(line in ran.stdout for line in leaks(card))
        for said in (run(app, ["inspect", file]).stdout, load(file).page().replace("\\", "")):
            assert privacy_sentence(card["privacy"]) in said
    model = load(file)
    del model.card["procurement"]["privacy"]
    model.save(file)
    assert "privacy" not in run(app, ["inspect", file]).stdout
    assert "privacy" not in load(file).page()
