import copy
import os
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st

from usfda import InputError, Model, adapt, evaluate, load, teach
from usfda.cli.main import main
from usfda.data.reading import UNKNOWN
from usfda.methods.teaching import masses
from usfda.text import stages as text
from usfda.text.teaching import joins

NEW = {"c7": "giraffe", "c8": "zebra"}


@pytest.fixture(scope="module")
def target() -> tuple[np.ndarray, np.ndarray]:
    """Source classes 0 and 1, and two things that the source does not have."""
    X, y = blobs([0, 1, 7, 8], 30, shift=0.5, seed=1)
    return X, np.asarray([NEW.get(str(label), str(label)) for label in y])


@pytest.fixture
def adapted(vector_model: Model, target: tuple[np.ndarray, np.ndarray]) -> Model:
    return adapt(vector_model, target[0])


def majority(model: Model, X: np.ndarray, y: np.ndarray) -> dict[int, str]:
    """The clusters, named as a person would."""
    cluster = model.decide(X).cluster
    assert cluster is not None
    names = {}
    for c in np.unique(cluster[cluster > 0]).tolist():
        found, counts = np.unique(y[cluster == c], return_counts=True)
        names[c] = str(found[counts.argmax()])
    return names


def test_named_clusters_are_classes_like_the_others(
    adapted: Model, target: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, y = target
    before = adapted.predict(X)
    assert np.mean(before[np.isin(y, list(NEW.values()))] == UNKNOWN) > 0.9
    names = majority(adapted, X, y)
    assert set(names.values()) == set(NEW.values())
    taught = teach(adapted, names=names)
    assert adapted.classes_ == adapted.source_classes  # what comes in is left as it is
    assert np.array_equal(adapted.predict(X), before)
    assert taught.classes_ == [*adapted.source_classes, "giraffe", "zebra"]
    taught.save(tmp_path / "m.usfda")
    again = load(tmp_path / "m.usfda")
    assert again.classes_ == taught.classes_
    for model in (taught, again):
        labels, p = model.predict(X), model.predict_proba(X)
        assert np.mean(labels == y) > 0.9
        assert p.shape == (len(X), len(model.classes_) + 1)
        assert p.sum(1) == pytest.approx(1, abs=1e-5)
        result = evaluate(model, X, y)
        assert result["private_classes"] == []
        assert result["shared_accuracy"] > 90
        assert {record.label for record in model.predictions(X)} >= set(NEW.values())
    findings = again.findings
    assert findings is not None
    assert {of.name for of in findings.taught} == set(NEW.values())
    assert all(
        of.examples == 0 and of.clusters >= 1 and of.images == pytest.approx(30, abs=8) for of in findings.taught
    )
    assert findings.clusters == ()
    assert findings.unknown_share < 10


@pytest.mark.parametrize("each", [1, 3])
def test_examples_make_classes(adapted: Model, target: tuple[np.ndarray, np.ndarray], each: int) -> None:
    X, y = target
    rows = np.concatenate([np.flatnonzero(y == name)[:each] for name in NEW.values()])
    taught = teach(adapted, X[rows], y[rows])
    rest = np.setdiff1d(np.arange(len(X)), rows)
    assert np.mean(taught.predict(X[rest]) == y[rest]) > 0.9
    assert taught.deployment["taught"]["giraffe"]["examples"] == each


def test_one_of_two_new_things_leaves_the_other_unknown(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = target
    row = np.flatnonzero(y == "zebra")[:1]
    taught = teach(adapted, X[row], ["zebra"])
    labels = taught.predict(X)
    assert np.mean(labels[y == "zebra"] == "zebra") > 0.9
    assert np.mean(labels[y == "giraffe"] == UNKNOWN) > 0.9
    both = teach(taught, names=majority(taught, X, y))
    assert both.classes_[-2:] == ["zebra", "giraffe"]
    assert np.mean(both.predict(X) == y) > 0.9


def test_names_and_examples_at_once(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = target
    giraffes = {c: name for c, name in majority(adapted, X, y).items() if name == "giraffe"}
    row = np.flatnonzero(y == "zebra")[:1]
    taught = teach(adapted, X[row], ["zebra"], names=giraffes)
    assert np.mean(taught.predict(X) == y) > 0.9


def test_a_cluster_may_be_a_class_that_is_there(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = target
    taught = teach(adapted, names=dict.fromkeys(majority(adapted, X, y), "c2"))
    assert taught.classes_ == adapted.classes_
    assert np.mean(taught.predict(X)[np.isin(y, list(NEW.values()))] == "c2") > 0.5


def test_what_seems_absent_is_told_anew(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    """Fault: a class that a cluster had joined still seemed absent, and one that had lost its images did not."""
    X, y = target
    assert adapted.findings is not None
    assert adapted.findings.absent == ("c2", "c3", "c4")
    joined = teach(adapted, names=dict.fromkeys(majority(adapted, X, y), "c2")).findings
    assert joined is not None
    assert joined.absent == ("c3", "c4")
    taken = teach(adapted, X[y == "c1"], ["mine"] * sum(y == "c1"))
    assert "c1" not in taken.predict(X)
    assert taken.findings is not None
    assert taken.findings.absent == ("c1", "c2", "c3", "c4")


def test_examples_that_keep_another_label_are_a_warning(
    adapted: Model, target: tuple[np.ndarray, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    X, y = target
    given = np.flatnonzero(y == "c0")[:2].tolist() + np.flatnonzero(y == "c1")[:3].tolist()
    teach(adapted, X[given], y[given])
    assert not caplog.messages
    teach(adapted, X[given], ["c0", "c0", "c1", "c1", "c0"])  # the last is wrong
    assert caplog.messages == [text.other_labels(1, 5, "", "c1", "c0")]


def test_what_was_taught_survives_an_update(
    adapted: Model, target: tuple[np.ndarray, np.ndarray], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    X, y = target
    taught = teach(adapted, names=majority(adapted, X, y))
    more, labels = blobs([0, 1, 7, 8], 30, shift=0.5, seed=2)
    later = adapt(taught, more, update=True)
    assert later.classes_ == taught.classes_
    expected = [NEW.get(str(label), str(label)) for label in labels]
    assert np.mean(later.predict(more) == expected) > 0.85
    later.save(tmp_path / "m.usfda")
    assert load(tmp_path / "m.usfda").classes_ == taught.classes_
    anew = adapt(taught, more)
    assert anew.classes_ == taught.source_classes
    assert caplog.messages[-1] == text.starts_anew(["giraffe", "zebra"])


@pytest.mark.parametrize("shift", [4.0, 5.0])
def test_an_update_of_a_taught_model_keeps_the_vendors_classes(vector_model: Model, shift: float) -> None:
    """Fault: beside taught classes, whose centres are the target's own, the vendor's seemed too unlike to be known."""
    own_way = np.random.default_rng(7).normal(0, shift, (10, 32)).astype(np.float32)  # of each class
    (X, y), (more, _) = (
        (X + own_way[[int(name[1:]) for name in y]], y)
        for X, y in (blobs([0, 1, 2, 3, 7, 8], 30, seed=seed) for seed in (1, 2))
    )
    adapted = adapt(vector_model, X)
    taught = teach(adapted, names=majority(adapted, X, y))
    assert {"c7", "c8"} & set(taught.classes_)
    right = taught.predict(X) == y
    assert right[np.isin(y, adapted.classes_)].mean() > 0.95
    assert (adapt(taught, more, update=True).predict(X) == y)[right].mean() > 0.95


def test_counts_after_updates_and_teaching(
    adapted: Model, target: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*args: object) -> str:
        assert main(list(map(str, args))) == 0
        return capsys.readouterr().out

    file = tmp_path / "m.usfda"
    adapted.save(file)
    more, _ = blobs([0, 1, 7, 8], 30, shift=0.5, seed=2)
    np.savez(tmp_path / "more.npz", X=more)
    said("adapt", file, tmp_path / "more.npz", "--update", "-o", file)
    updated = load(file).findings
    assert updated is not None
    assert (updated.samples, updated.earlier_samples) == (120, len(target[0]))
    unknown = load(file).predict(more) == "unknown"
    assert updated.unknown_share == pytest.approx(100 * unknown.mean(), abs=0.01)
    said("teach", file, "--name", "1=giraffe", "-o", file)  # of all samples in the coreset
    findings = load(file).findings
    assert findings is not None
    assert (findings.samples, findings.earlier_samples) == (len(target[0]) + 120, 0)
    everything = np.concatenate([target[0], more])
    share = 100 * np.mean(load(file).predict(everything) == "unknown")
    assert findings.unknown_share == pytest.approx(share, abs=2)
    assert "giraffe" in said("inspect", file)
    said("adapt", file, tmp_path / "more.npz", "--update", "-o", file)
    later = load(file).findings
    assert later is not None
    assert (later.samples, later.earlier_samples) == (120, len(everything))
    assert later.taught[0].images > findings.taught[0].images  # of all batches, the last one among them
    known = load(file).classes_[0]
    assert joins(1, known) in said("teach", file, "--name", f"1={known}", "-o", file)


def test_what_joins_a_class_of_the_vendor_stays_in_it(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    """Fault: an update found the vendor's classes by the vendor's prototypes alone, and what had joined was lost."""
    X, y = target
    number = next(c for c, name in majority(adapted, X, y).items() if name == "giraffe")
    first = adapted.classes_[0]
    joined = teach(adapted, names={number: first})
    more, names = blobs([0, 1, 7, 8], 30, shift=0.5, seed=2)
    mine = names == "c7" if np.mean(joined.predict(more[names == "c7"]) == first) > 0.5 else names == "c8"
    assert np.mean(joined.predict(more)[mine] == first) > 0.9
    updated = adapt(joined, more, update=True)
    assert np.mean(updated.predict(more)[mine] == first) > 0.9
    assert updated.findings is not None
    assert updated.findings.joined == (first,)


def test_outliers_are_counted(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    strange = np.random.default_rng(5).normal(0, 12, (3, target[0].shape[1])).astype(np.float32)
    found = adapt(adapted, np.concatenate([target[0], strange])).findings
    assert found is not None
    assert found.outliers > 0
    unknown = round(found.unknown_share * found.samples / 100)
    assert sum(cluster.samples for cluster in found.clusters) + found.outliers == unknown


def test_teaching_can_be_undone(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = target
    taught = teach(adapted, names=majority(adapted, X, y))
    one = teach(taught, forget=["giraffe"])
    assert one.classes_ == [*adapted.source_classes, "zebra"]
    assert np.mean(one.predict(X)[y == "giraffe"] == UNKNOWN) > 0.9
    assert np.mean(one.predict(X)[y == "zebra"] == "zebra") > 0.9
    none = teach(one, forget=["zebra"])
    assert none.classes_ == adapted.classes_
    assert np.mean(none.predict(X) == adapted.predict(X)) > 0.98


def test_the_vendors_part_stays(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = target
    taught = teach(adapted, names=majority(adapted, X, y))
    assert taught.vendor is adapted.vendor
    assert np.array_equal(taught.source_model.predict(X), adapted.source_model.predict(X))


def test_no_vector_of_a_single_example_is_kept(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    """Neither itself nor as the difference of what was there before."""
    X, y = target
    row = np.flatnonzero(y == "zebra")[0]
    taught = teach(adapted, X[[row]], ["zebra"])
    other = teach(adapted, X[[row]] + 1e-3, ["zebra"])
    for name, tensor in taught.head.tensors().items():
        assert np.array_equal(tensor, other.head.tensors()[name]), name


def test_an_example_like_nothing_in_the_target(adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    strange, _ = blobs([5], 3, shift=0.5, seed=3)
    with pytest.raises(InputError, match="okapi"):
        teach(adapted, strange[:1], ["okapi"])
    with pytest.raises(InputError, match="two"):  # copies are one
        teach(adapted, strange[[0, 0]], ["okapi", "okapi"])
    taught = teach(adapted, strange[:2], ["okapi", "okapi"])
    assert taught.predict(strange[2:])[0] == "okapi"
    assert np.mean(taught.predict(target[0]) == adapted.predict(target[0])) > 0.98


def test_what_cannot_be_taught(vector_model: Model, adapted: Model, target: tuple[np.ndarray, np.ndarray]) -> None:
    X, _ = target
    clusters = len(adapted.decide(X[:1]).probability[0])
    with pytest.raises(InputError, match="mixture"):
        teach(vector_model, names={1: "a"})
    with pytest.raises(InputError, match="teach"):
        teach(adapted)
    with pytest.raises(InputError, match="99"):
        teach(adapted, names={99: "a"})
    with pytest.raises(InputError, match="unknown"):
        teach(adapted, names={1: "Unknown"})
    with pytest.raises(InputError, match="horse"):
        teach(adapted, forget=["horse"])
    assert clusters == len(adapted.classes_) + 1


def test_a_name_that_differs_in_case_alone_is_a_warning(
    adapted: Model, target: tuple[np.ndarray, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    X, y = target
    teach(adapted, names={1: "c0", 2: "giraffe"})
    assert not caplog.records
    said = text.similar_name("C0", "c0")
    teach(adapted, names={1: "C0"})
    assert [record.getMessage() for record in caplog.records] == [said]
    caplog.clear()
    teach(adapted, X[y == "zebra"][:2], ["C0"] * 2)
    assert [record.getMessage() for record in caplog.records] == [said]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_masses_are_those_that_the_bias_was_made_of(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mass = np.round(rng.gamma(1, 20, rng.integers(2, 30)), 3) + 0.01

    class Head:
        counts = mass
        bias = np.log((mass + 0.5) / (mass.mean() + 0.5)).astype(np.float32)

    assert masses(Head) == pytest.approx(mass, rel=1e-4, abs=1e-3)  # type: ignore[arg-type]


def test_the_command(
    adapted: Model, target: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = target
    file, taught = tmp_path / "client.usfda", tmp_path / "taught.usfda"
    adapted.save(file)
    row = np.flatnonzero(y == "zebra")[:1]
    np.savez(tmp_path / "examples.npz", X=X[row], y=["zebra"])
    giraffe = next(c for c, name in majority(adapted, X, y).items() if name == "giraffe")
    call = ["teach", str(file), str(tmp_path / "examples.npz"), "--name", f"{giraffe}=giraffe", "-o", str(taught)]
    assert main(call) == 0
    found = load(taught).findings
    assert found is not None
    assert [(of.name, of.clusters, of.examples) for of in found.taught] == [("giraffe", 1, 0), ("zebra", 0, 1)]
    assert np.mean(load(taught).predict(X) == y) > 0.9
    assert main(["inspect", str(taught)]) == 0
    assert "zebra" in capsys.readouterr().out
    assert main(["teach", str(taught), "--forget", "zebra", "-o", str(taught)]) == 0
    assert load(taught).classes_[-1] == "giraffe"
    capsys.readouterr()
    for wrong in (
        ["--name", "giraffe"],
        ["--name", "x=giraffe"],
        ["--name", "1=a", "--name", "1=b"],
        ["--name", "1=NAME"],
        [],
    ):
        assert main(["teach", str(file), *wrong, "-o", str(tmp_path / "no.usfda")]) == 2
        assert not (tmp_path / "no.usfda").exists()


def test_a_name_that_is_taken_back_leaves_the_interval_as_it_was(adapted: Model) -> None:
    """Fault: the low end, which cannot fall below 0, rose with every class that was taught and forgotten."""
    card = copy.deepcopy(adapted.card)
    assert card["deployment"] is not None
    card["deployment"]["check"]["unknown_interval"] = [0.0, 60.0]
    wide = Model(adapted.source_classes, adapted.vendor, adapted.head, adapted.backbone, card)
    again = teach(teach(wide, names={1: "giraffe"}), forget=["giraffe"]).findings
    assert again is not None
    assert again.unknown_interval == pytest.approx((0, 60), abs=0.1)


def test_what_a_card_says_is_one_word_of_every_suggested_command(
    adapted: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a backbone, which the file chooses, in the lines that teach, inspect and adapt print."""
    monkeypatch.chdir(tmp_path)
    name = "x; touch pwned #"
    record = {"input_size": [3, 8, 8], "crop_pct": 1, "interpolation": "bicubic", "mean": [0] * 3, "std": [1] * 3}
    adapted.card["backbone"] = {"name": name, "sha256": "0" * 64, "record": record}
    file, more = "it's; touch pwned #.usfda", "more $(touch pwned).npz"
    adapted.save(file)
    np.savez(more, X=blobs([0, 7], 30, shift=0.5, seed=2)[0])
    lines = []
    for call in (
        ["teach", file, "--name", "1=okapi", "-o", file],
        ["inspect", file],
        ["adapt", file, more, "--update", "--without-backbone", "-o", file],
    ):
        assert main(call) == 0
        said = capsys.readouterr()
        lines += [line[line.index("usfda ") :] for line in (said.out + said.err).splitlines() if " usfda " in line]
    commands = [line for line in lines if "--backbone" in line]
    assert len(commands) > 5
    for command in commands:
        words = shlex.split(command)
        assert words[words.index("--backbone") + 1] == name
        assert file in words
    shown = subprocess.run(
        "\n".join(lines), shell=True, capture_output=True, env=os.environ | {"PATH": "/usr/bin:/bin"}
    )
    assert shown.stderr
    assert not Path("pwned").exists()
