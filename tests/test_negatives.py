from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from usfda import Config, Features
from usfda.backbones.zoo import get_backbone
from usfda.data.reading import read
from usfda.data.samples import Samples
from usfda.features.cache import cache_info
from usfda.features.extract import Extractor
from usfda.methods.usfda.negatives import compose, masks, negative_classes, plan, spline
from usfda.stages.procure import composite_features

uniform = st.lists(st.floats(0, 0.9990234375, width=32), min_size=5, max_size=5)


@given(st.lists(uniform, min_size=1, max_size=4), st.integers(8, 40), st.integers(8, 40))
def test_the_spline_goes_through_its_three_points(u: list[list[float]], height: int, width: int) -> None:
    cuts = spline(np.asarray(u, np.float32))
    for mask, (y0, xm, ym, y1, vertical) in zip(masks(cuts, (height, width)), cuts, strict=True):
        m = mask.T if vertical else mask
        across, along = m.shape
        assert abs(m[:, 0].sum() - y0 * across) <= 1
        assert abs(m[:, -1].sum() - y1 * across) <= 1
        middle = round(float(xm) * (along - 1))
        # Between two columns the parabola may move by its steepest slope over half a column.
        assert abs(m[:, middle].sum() - ym * across) <= 1 + 6 * across / along
        assert abs(xm - 0.5) <= 30 / 224
        assert abs(ym - 0.5) <= 10 / 224 + 1e-6


@given(st.lists(uniform, min_size=3, max_size=3))
def test_every_pixel_comes_from_one_image_and_the_two_ways_round_are_complementary(u: list[list[float]]) -> None:
    cuts = spline(np.asarray(u, np.float32))[:, None]
    rng = np.random.default_rng(0)
    pair = rng.integers(0, 128, (3, 2, 16, 16, 3), dtype=np.uint8)
    pair[:, 1] += 128
    one, other = compose(pair, cuts), compose(pair[:, ::-1], cuts)
    first = one[..., :1] < 128
    assert np.array_equal(one, np.where(first, pair[:, 0], pair[:, 1]))
    assert np.array_equal(other, np.where(first, pair[:, 1], pair[:, 0]))


def test_three_images_in_one_composite() -> None:
    made = plan(np.repeat(["a", "b", "c", "d"], 5), 40, images=3)
    assert made.classes == [("a", "b", "c"), ("a", "b", "d"), ("a", "c", "d"), ("b", "c", "d")]
    assert made.images.shape == (48, 3)
    assert made.splines.shape == (48, 2, 5)
    solid = np.broadcast_to(np.asarray([10, 20, 30], np.uint8)[None, :, None, None, None], (48, 3, 32, 32, 3))
    colours = [set(np.unique(c).tolist()) for c in compose(solid, made.splines)]
    assert sum(len(c) == 3 for c in colours) > 40


def test_classes_of_a_composite_are_its_label() -> None:
    labels = np.asarray(["x", "y", "z"] * 4)
    made = plan(labels, 100)
    assert made.classes == [("x", "y"), ("x", "z"), ("y", "z")]
    for images, y in zip(made.images, made.y, strict=True):
        assert tuple(sorted(labels[images])) == made.classes[y]


def test_negative_classes_are_all_pairs_or_so_many() -> None:
    assert len(negative_classes(20, 2, 600)) == 190
    some = negative_classes(1000, 2, 600)
    assert len(set(some)) == 600
    assert some == negative_classes(1000, 2, 600)
    assert len({c for pair in some for c in pair}) > 600
    assert negative_classes(2, 3, 600) == []


def test_more_composites_keep_those_that_there_were() -> None:
    labels = np.repeat(["a", "b", "c"], 6)

    def drawn(total: int) -> set[bytes]:
        made = plan(labels, total)
        return {i.tobytes() + s.tobytes() for i, s in zip(made.images, made.splines, strict=True)}

    assert drawn(60) < drawn(120)


def labelled(photos: Path, extractor: Extractor, classes: list[str] | None = None) -> tuple[Features, np.ndarray]:
    samples = read(photos, labelled=True, classes=classes)
    assert isinstance(samples, Samples)
    found = extractor.features(samples)
    assert found.labels is not None
    return found, found.labels


def test_composites_are_stored_and_shared_by_label_sets(photos: Path, config: Config) -> None:
    extractor = Extractor.make(get_backbone("pixels"), config)

    def features(classes: list[str]) -> np.ndarray:
        found, labels = labelled(photos, extractor, classes)
        made = plan(labels, 24 * len(classes) * (len(classes) - 1) // 2)
        X = composite_features(found, made, extractor)
        assert len(X) == len(made)
        return X[np.flatnonzero(made.y == made.classes.index(("kind0", "kind1")))]

    def stored() -> int:
        assert config.cache is not None
        return sum(s["vectors"] for s in cache_info(config.cache)["caches"].values())

    three = features(["kind0", "kind1", "kind2"])
    before = stored()
    two = features(["kind0", "kind1"])
    assert stored() == before
    assert np.array_equal(two, three)


def test_a_stored_composite_is_the_composed_image(photos: Path, config: Config) -> None:
    m = get_backbone("pixels")
    extractor = Extractor.make(m, config)
    found, labels = labelled(photos, extractor)
    assert found.paths is not None
    made = plan(labels, 60)
    X = composite_features(found, made, extractor)
    for j in (0, 17, len(made) - 1):
        parts = np.stack([m.prepare(found.paths[i].read_bytes()) for i in made.images[j]])[None]
        expected = m.run(compose(parts, made.splines[[j]]))[0]
        assert X[np.asarray([j])][0] == pytest.approx(expected, abs=1e-5)


def test_a_composite_is_made_of_the_images_that_its_key_names(photos: Path, tmp_path: Path, config: Config) -> None:
    """Fault: an image was read twice, to hash it and to decode it; replaced in between, it was stored as the other."""
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        path.write_bytes((photos / f"kind{i // 2}" / f"00{i}.png").read_bytes())
    extractor = Extractor.make(get_backbone("pixels"), config)
    found = extractor.features(Samples(paths, np.asarray(["a", "a", "b", "b"])))
    made = plan(np.asarray(["a", "a", "b", "b"]), 40)
    expected = composite_features(found, made, Extractor.make(get_backbone("pixels"), Config(cache=None)))
    paths[0].write_bytes((photos / "kind3" / "000.png").read_bytes())
    with pytest.raises(RuntimeError, match=r"0\.png.*changed"):
        composite_features(found, made, extractor)
    paths[0].write_bytes((photos / "kind0" / "000.png").read_bytes())
    assert np.array_equal(composite_features(found, made, extractor)[:], expected[:])
