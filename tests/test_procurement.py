import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from conftest import blobs
from scipy.stats import multivariate_normal
from torch.nn import functional

from usfda import Config, InputError, Model, ProcurementSettings, UsfdaSettings, adapt, load, procure
from usfda.config import silent
from usfda.methods.settings import Negatives, TrainingSet, hold_out
from usfda.methods.usfda.latent import latent_negatives
from usfda.methods.usfda.networks import D, balanced_batches, batches, learnable, make_f, make_g
from usfda.methods.usfda.priors import RIDGE, ClassPriors
from usfda.methods.usfda.procurement import another_round, l_p, train_source
from usfda.text.procurement import label
from usfda.text.stages import contradictions


@pytest.mark.parametrize("value", [0.0, 1.5])
@pytest.mark.parametrize("method", ["all", "mixture", "usfda"])
def test_a_source_of_one_vector_is_refused(value: float, method: Literal["all", "mixture", "usfda"]) -> None:
    with pytest.raises(InputError, match="all source samples are the same"):
        procure(np.full((20, 8), value, np.float32), ["a", "b"] * 10, method=method)


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


def test_a_part_of_every_class_is_held_out() -> None:
    y = np.repeat([0, 1, 2], [2, 7, 100])
    train, out = hold_out(y, 0.1)
    assert np.bincount(y[out]).tolist() == [1, 1, 10]
    assert sorted([*train, *out]) == list(range(109))
    assert len(hold_out(y, 0)[1]) == 0
    assert np.bincount(y[hold_out(y, 0.99)[0]]).tolist() == [1, 1, 1]


def test_batches_visit_everything_before_anything_twice() -> None:
    take = batches(np.arange(10), 5, np.random.default_rng(0))
    assert sorted([*take(), *take()]) == list(range(10))
    assert len(batches(np.arange(3), 5, np.random.default_rng(0))()) == 3


def test_balanced_batches_hold_rare_classes_as_often() -> None:
    y = np.asarray([0] * 2 + [1] * 98)
    index = np.delete(np.arange(100), [0, 5])  # those that are held out are never drawn
    take = balanced_batches(index, y, 64, np.random.default_rng(0))
    drawn = np.concatenate([take() for _ in range(100)])
    assert len(drawn) == 6400
    assert not np.isin(drawn, [0, 5]).any()
    assert np.mean(y[drawn] == 0) == pytest.approx(0.5, abs=0.03)
    assert len(np.unique(drawn)) == 98


@pytest.mark.parametrize("changed", ["balanced", "training_priors"])
def test_variants_of_procurement_change_the_networks(changed: str) -> None:
    X, y = blobs([0, 1, 2, 3], 30)
    settings = {"iterations": 80, "update_every": 16, "lr": 1e-3}
    usual = procure(X, y, method="all", negatives="prior", settings=settings)
    other = procure(X, y, method="all", negatives="prior", settings={**settings, changed: True})
    assert usual.vendor.networks is not None
    assert other.vendor.networks is not None
    assert any((usual.vendor.networks.D[name] != value).any() for name, value in other.vendor.networks.D.items())
    assert np.mean(other.predict(X) == y) > 0.9


@pytest.mark.parametrize("kind", ["latent", "prior"])
def test_procurement_on_vectors_learns_the_source(kind: Negatives) -> None:
    X, y = blobs([0, 1, 2, 3], 30)
    settings = ProcurementSettings(iterations=80, update_every=16, lr=1e-3)
    model = procure(X, y, method="all", negatives=kind, settings=settings)
    card = model.card["procurement"]
    assert card["negatives"]["classes"] == {"latent": 1, "prior": 6}[kind]
    assert (card["validation"]["accuracy"] or 0) > 90
    assert np.mean(model.predict(X) == y) > 0.95
    counts = {name: len(values) for name, values in card["history"].items()}
    assert counts == {"L_CE": 24, "L_v": 24, "L_u": 16, "L_p": 16}  # 2 × 8 before the first priors, then 64 / 4
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
        return float(((z - own.mean(0)).norm(dim=1) > (own - own.mean(0)).norm(dim=1).max()).float().mean())

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


def ready(X: np.ndarray, y: np.ndarray, X_n: np.ndarray, y_n: np.ndarray) -> TrainingSet:
    """Three classes, three negative ones, nothing held out."""
    return TrainingSet(X, y, 3, np.arange(len(y)), "composite", 3, X_n, y_n)


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Networks in 64 bits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
def test_the_four_losses_take_turns_as_documented() -> None:
    """Ten iterations against another loop: what each loss is, what it trains, in which mode the priors are fitted.

    In 32 bits, rounding alone moves the last losses by some percent: signs in the gradients of L_v and L_u turn, and
    Adam's first steps are as large for the smallest gradient as for any.
    """
    X = blobs([0, 1, 2], 30)[0].astype(np.float64)
    y = np.arange(90) % 3  # not the blobs: were the classes easy to tell, the fourth loss would be 0
    X_n, y_n = (X[:30] + X[30:60]) / 2, np.arange(30) % 3
    settings = ProcurementSettings(iterations=10, update_every=4, batch=20, negative_batch=10, lr=1e-3, alpha=0.3)
    trained = train_source(ready(X, y, X_n, y_n), settings, 5, Config())

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
        assert found == pytest.approx(values)
    for ours, theirs in ((trained.f, f), (trained.d, d), (trained.g, g)):
        pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
        assert np.mean([(a - b).abs().mean().item() for a, b in pairs]) < 1e-6


def test_the_number_of_rounds_follows_from_held_out_accuracy() -> None:
    """Three at least, another one after every rise by half a point, none beyond the bound."""

    def rounds(accuracy: list[float], most: int) -> int:
        return next(n for n in range(1, len(accuracy) + 1) if not another_round(accuracy[:n], 100 * n, most))

    risen = [0.5, 0.6, 0.7, 0.8, 0.9, 0.9]
    assert rounds(risen, 10_000) == 6
    assert rounds(risen, 400) == 4
    assert rounds([0.9, 0.9, 0.904, 1.0], 10_000) == 3
    assert rounds([0.99, 0.5, 0.6, 1.0], 100) == 3


def test_more_classes_take_more_iterations_unless_a_number_is_given() -> None:
    rng = np.random.default_rng(0)
    counts, texts = {}, []

    def watch(total: int, text: str, unit: str) -> Any:
        texts.append((total, text))
        return silent(total, text, unit)

    for classes in (4, 120):
        centres = rng.normal(0, 1, (classes, 32))
        y = np.repeat(np.arange(classes), 10)
        X = (centres[y] + rng.normal(0, 0.5, (len(y), 32))).astype(np.float32)
        names = np.asarray([f"c{c:03d}" for c in y])
        quick = {"update_every": 20, "lr": 1e-3}
        made = procure(X, names, method="usfda", negatives="latent", settings=quick, config=Config(progress=watch))
        training = made.card["procurement"]["training"]
        assert training["iterations"] == 20 * len(training["accuracy"])
        assert training["accuracy"][-1] == made.card["procurement"]["validation"]["accuracy"]
        assert (training["batch"], training["lr"]) == (64, 1e-3)
        counts[classes] = training["iterations"]
    assert counts[4] == 60 < counts[120]
    assert [total for total, _ in texts] == [20] * (sum(counts.values()) // 20)
    assert texts[1][1].endswith("SSM), round 2, source accuracy 100%")
    given = procure(X, names, method="usfda", settings={**quick, "iterations": 50})
    assert given.card["procurement"]["training"]["iterations"] == 50
    assert given.card["procurement"]["training"]["accuracy"] == []


def test_batches_and_learning_rate_grow_beyond_250_classes() -> None:
    usual = ProcurementSettings()
    assert usual.scaled(31) == usual.scaled(250) == usual
    large = usual.scaled(1000)
    assert (large.batch, large.negative_batch) == (256, 256)
    assert large.lr == pytest.approx(4e-4)


FEW = ProcurementSettings(iterations=12, update_every=4, composites=200)


@pytest.fixture(scope="module")
def image_model(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    config = Config(cache=tmp_path_factory.mktemp("store"))
    return procure(photos, method="all", backbone="pixels", settings=FEW, seed=3, config=config)


def test_images_with_composites(image_model: Model) -> None:
    card = image_model.card["procurement"]
    assert card["classes"] == {f"kind{i}": 12 for i in range(4)}
    assert card["negatives"] == {"kind": "composite", "classes": 6, "samples": 216}
    assert card["learnable_parameters"] == learnable(make_f(256), make_g(256), D(4, 6))
    assert set(card["history"]) == {"L_CE", "L_v", "L_u", "L_p"}
    assert image_model.card["backbone"]["name"] == "pixels"


def test_the_same_seed_gives_the_same_model(photos: Path, image_model: Model) -> None:
    same, other = (
        procure(photos, method="all", backbone="pixels", settings=FEW, seed=s).vendor.tensors() for s in (3, 4)
    )
    for name, tensor in image_model.vendor.tensors().items():
        assert np.array_equal(tensor, same[name])
    assert not np.array_equal(same["D.source.weight"], other["D.source.weight"])


def test_negatives_raise_what_they_should() -> None:
    """With α = 0 the negatives teach nothing; with α > 0 they are told apart from the classes."""
    X, y = blobs([0, 1, 2], 40)
    targets = np.unique(y, return_inverse=True)[1]
    X_n = np.concatenate([(X[:40] + X[40:80]) / 2, (X[:40] + X[80:]) / 2, (X[40:80] + X[80:]) / 2])
    y_n = np.repeat([0, 1, 2], 40)

    def known(alpha: float) -> float:
        settings = ProcurementSettings(iterations=60, update_every=20, lr=1e-3, alpha=alpha)
        trained = train_source(ready(X, targets, X_n, y_n), settings, 0, Config())
        with torch.no_grad():
            return float(trained.d(trained.f(torch.from_numpy(X_n))).softmax(1)[:, :3].sum(1).mean())

    assert known(1.0) < 0.2 < known(0.0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"iterations": -1}, "0 for as many as the source needs"),
        ({"max_epochs": 0}, "start at 1"),
        ({"negative_batch": 0}, "start at 1"),
        ({"holdout": 1.0}, "holdout"),
        ({"images_per_composite": 1}, "two images"),
        ({"lr": float("nan")}, "lr positive"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        ProcurementSettings(**wrong)


def test_labels_that_contradict_each_other_are_named(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: the same image in two classes was learnt as both, without a word."""
    images = [photos / f"kind{kind}" / f"{i:03d}.png" for kind in (0, 1) for i in range(4)]
    lines = [f"{image},{image.parent.name}" for image in images]
    copy = tmp_path / "copy.png"
    copy.write_bytes(images[5].read_bytes())
    again = [f"{images[0]},kind1", f"{images[1]},kind0", f"{copy},kind0"]  # the second has the label that it had
    (tmp_path / "list.csv").write_text("\n".join(lines + again))
    X, y = blobs([0, 1], 5)
    X[7] = X[2]
    procure(tmp_path / "list.csv", method="mixture", backbone="pixels")
    procure(X, y, method="mixture")
    procure(np.delete(X, 7, 0), np.delete(y, 7), method="mixture")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings[1:] == [
        contradictions(2, f"{images[0]} (kind0)", f"{images[0]} (kind1)"),
        contradictions(1, "row 2 (c0)", "row 7 (c1)"),
    ]


def test_wrong_sources(photos: Path) -> None:
    X, y = blobs([0, 1], 5)
    with pytest.raises(InputError, match="labels"):
        procure(X)
    with pytest.raises(InputError, match="labels"):
        procure(X, y[:9])
    with pytest.raises(InputError, match="composites"):
        procure(X, y, method="all", negatives="composite")
    with pytest.raises(InputError, match="update_every"):
        procure(X, y, method="all", settings=ProcurementSettings(iterations=50, update_every=50))
    with pytest.raises(InputError, match="unknown"):
        procure(X, np.where(y == "c0", "unknown", y))
    three = ProcurementSettings(images_per_composite=3)
    with pytest.raises(InputError, match="composites"):
        procure(photos, method="all", classes=["kind0", "kind1"], backbone="pixels", settings=three)


def test_the_card_is_json_and_names_no_place(image_model: Model, photos: Path) -> None:
    text = json.dumps(image_model.card)
    assert str(photos) not in text
    assert "000.png" not in text


PARTS = {"all": {"F_s", "D", "class_statistics"}, "mixture": {"class_statistics"}, "usfda": {"F_s", "D"}}
SECONDS = {
    "all": ["features", "class_statistics", "negatives", "networks"],
    "mixture": ["features", "class_statistics"],
    "usfda": ["features", "negatives", "networks"],
}
HEAD = {"all": "source-network", "mixture": "class-means", "usfda": "source-network"}


@pytest.fixture(scope="module")
def models_for() -> dict[str, Model]:
    """A model for every method, one for each of them alone."""
    X, y = blobs([0, 1, 2, 3, 4], 30)
    quick = ProcurementSettings(iterations=60, update_every=20, lr=1e-3)
    kinds: tuple[Any, ...] = ("all", "mixture", "usfda")
    return {method: procure(X, y, method=method, settings=quick) for method in kinds}


@pytest.mark.parametrize("method", PARTS)
def test_a_file_has_the_parts_that_its_method_needs(models_for: dict[str, Model], method: str) -> None:
    model = models_for[method]
    card = model.card["procurement"]
    assert {name.split(".")[0] for name in model.vendor.tensors()} == PARTS[method]
    assert card["method"] == method
    assert list(card["seconds"]) == SECONDS[method]
    assert ("negatives" in card) == ("history" in card) == (method != "mixture")
    assert (model.vendor.networks is None, model.vendor.class_statistics is None) == (
        method == "mixture",
        method == "usfda",
    )


@pytest.mark.parametrize("method", PARTS)
def test_the_held_out_accuracy_is_that_of_the_head_the_client_starts_from(
    models_for: dict[str, Model], method: str
) -> None:
    model = models_for[method]
    checked = model.card["procurement"]["validation"]
    assert checked["head"] == model.head.name == HEAD[method]
    assert checked["samples"] == 15
    assert checked["accuracy"] is not None
    assert checked["rejected"] is not None
    assert checked["accuracy"] > 85
    assert 0 <= checked["rejected"] <= 100 - checked["accuracy"]


def test_the_held_out_accuracy_by_hand(models_for: dict[str, Model]) -> None:
    """Of the networks, which never saw the samples; of the prototypes, those that are made without them."""
    X, y = blobs([0, 1, 2, 3, 4], 30)
    train, held_out = hold_out(np.unique(y, return_inverse=True)[1], 0.1)
    for method in ("all", "mixture"):
        model = models_for[method]
        if method == "mixture":
            model = procure(X[train], y[train], method="mixture", settings={"holdout": 0})
        right = np.mean(model.predict(X[held_out]) == y[held_out])
        checked = models_for[method].card["procurement"]["validation"]
        assert checked["accuracy"] == pytest.approx(100 * right, abs=0.01)
    nothing = procure(X, y, method="mixture", settings={"holdout": 0}).card["procurement"]["validation"]
    assert nothing == {"head": "class-means", "samples": 0, "accuracy": None, "rejected": None}


def test_a_file_for_one_method_is_smaller(models_for: dict[str, Model], tmp_path: Path) -> None:
    size = {}
    for method, model in models_for.items():
        model.save(tmp_path / method)
        size[method] = (tmp_path / method).stat().st_size
    assert 100 * size["mixture"] < size["usfda"] < size["all"]


def test_a_file_for_one_method_adapts_as_one_for_all(models_for: dict[str, Model], tmp_path: Path) -> None:
    X, _ = blobs([0, 1, 2, 7, 8], 40, shift=0.5, seed=1)
    few = UsfdaSettings(steps=10)
    for method, settings in (("mixture", None), ("usfda", few)):
        models_for[method].save(tmp_path / "m.usfda")
        alone = adapt(load(tmp_path / "m.usfda"), X, method=method, settings=settings)  # type: ignore[arg-type]
        whole = adapt(models_for["all"], X, method=method, settings=settings)  # type: ignore[arg-type]
        assert alone.head.name == whole.head.name == method
        assert np.array_equal(alone.predict(X), whole.predict(X))
        assert alone.predict_proba(X) == pytest.approx(whole.predict_proba(X), abs=1e-6)


@pytest.mark.parametrize(("made", "wanted"), [("mixture", "usfda"), ("usfda", "mixture")])
def test_a_missing_part_is_named_with_the_command(models_for: dict[str, Model], made: str, wanted: Any) -> None:
    X, _ = blobs([0, 1], 20)
    says = (
        f"procured for method {made} alone and cannot be adapted with method {wanted}; "
        f"procure it again with --for all, or adapt it with --method {made}"
    )
    with pytest.raises(InputError, match=re.escape(says)):
        adapt(models_for[made], X, method=wanted)


def test_what_a_file_is_for_is_checked_first(photos: Path) -> None:
    X, y = blobs([0, 1], 5)
    with pytest.raises(InputError, match="both"):
        procure(X, y, method="both")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="none"):
        procure(X, y, method="all", negatives="none")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="usfda"):
        procure(X, y, negatives="latent")
    # For usfda there are no negatives, so that nothing has to be composed, and a wide choice of classes costs nothing.
    assert procure(photos, method="mixture", backbone="pixels").vendor.networks is None


def test_settings_are_an_object_or_a_dict_of_its_fields() -> None:
    X, y = blobs([0, 1], 5)
    model = procure(X, y, method="mixture", settings={"holdout": 0.5})
    assert model.card["procurement"]["settings"]["holdout"] == 0.5
    assert list(model.card["procurement"]["settings"]) == [field.name for field in fields(ProcurementSettings)]
    with pytest.raises(InputError, match="epochs"):
        procure(X, y, settings={"epochs": 3})
    with pytest.raises(InputError, match="ProcurementSettings"):
        procure(X, y, settings=UsfdaSettings())  # type: ignore[arg-type]


def test_progress_names_the_parts_and_their_purpose(photos: Path, cache: Path) -> None:
    texts: list[str] = []

    def watch(total: int, text: str, unit: str) -> Any:
        texts.append(text)
        return silent(total, text, unit)

    procure(photos, method="all", backbone="pixels", settings=FEW, config=Config(cache=cache, progress=watch))
    assert texts == [
        "source features (for every method)",
        "negatives (for method usfda)",
        label("networks", "networks"),
    ]
