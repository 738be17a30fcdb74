"""Review: the draw, the choice, the measurement; answers in a file, in a terminal and from Python; taking it back."""

from __future__ import annotations

import csv
import json
import os
import pty
import select
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from usfda import Config, InputError, Model, Question, adapt, evaluate, export_onnx, load, procure, review, teach
from usfda.cli.main import main
from usfda.methods.heads import MixtureHead
from usfda.methods.review import NONE, Answers, Decided, choose, draw, inclusion, measure, without_each
from usfda.modelfile import LIMITS
from usfda.stages.review import Survey, forget_review

CONFIG = Config(threads=1, cache=None)
PATIENCE = 120  # seconds after which something that should happen has not


@pytest.fixture(scope="module")
def target() -> tuple[np.ndarray, np.ndarray]:
    """Source classes 0, 1 and 2, and two things that the source does not have."""
    return blobs([0, 1, 2, 7, 8], 30, shift=0.5, seed=1)


@pytest.fixture(scope="module")
def strict(target: tuple[np.ndarray, np.ndarray]) -> Model:
    """Adapted with a threshold that rejects nearly everything."""
    X, y = blobs([0, 1, 2, 3], 30)
    return adapt(procure(X, y, method="mixture"), target[0], strictness=1 - 1e-9, config=CONFIG)


@pytest.fixture
def oracle(target: tuple[np.ndarray, np.ndarray], strict: Model) -> Callable[[Question], str]:
    def answer(question: Question) -> str:
        label = str(target[1][question.row])
        return "y" if label == question.guess else label if label in strict.classes_ else "none"

    return answer


def population(n: int, seed: int, groups: int = 8) -> tuple[Decided, np.ndarray, np.ndarray]:
    """A target with scores that are informative but not calibrated: decisions, truth, labels."""
    rng = np.random.default_rng(seed)
    best, cluster = rng.integers(0, groups, n), rng.integers(1, groups + 1, n)
    z = rng.normal(0, 4, n)
    known = rng.random(n) < expit(0.6 * z - 1)
    truth = np.where(known, np.where(rng.random(n) < 0.85, best, (best + 1) % groups), NONE)
    decided = Decided(expit(z), best, cluster, 0.5, groups)
    return decided, truth, np.where(decided.score >= 0.5, best, NONE)


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=50), st.integers(1, 60))
def test_inclusion_probabilities_are_probabilities_and_sum_to_the_count(sizes: list[float], count: int) -> None:
    found = inclusion(np.asarray(sizes), min(count, len(sizes)))
    assert (found > 0).all()
    assert (found <= 1 + 1e-9).all()
    assert found.sum() == pytest.approx(min(count, len(sizes)))


def test_every_sample_is_drawn_as_often_as_its_probability_says() -> None:
    decided, _, _ = population(60, 0)
    drawn, probability, draws = np.zeros(60), np.zeros(60), 4000
    for seed in range(draws):
        rows, share = draw(decided, 12, np.random.default_rng(seed))
        assert len(np.unique(rows)) == 12
        drawn[rows] += 1
        probability[rows] = share
    assert drawn / draws == pytest.approx(probability, abs=0.04)
    near, far = np.abs(decided.z) < 1, np.abs(decided.z) > 5
    assert probability[near].mean() > 1.1 * probability[far].mean()


def test_asking_for_more_than_there_are_asks_for_all() -> None:
    rows, probability = draw(population(9, 0)[0], 20, np.random.default_rng(0))
    assert sorted(rows.tolist()) == list(range(9))
    assert (probability == 1).all()


@settings(max_examples=6, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([20, 40]))
def test_figures_are_unbiased_and_their_intervals_cover(seed: int, count: int) -> None:
    decided, truth, label = population(500, seed)
    right, known = label == truth, truth != NONE
    accuracy, rejected = 100 * right[known].mean(), 100 * right[~known].mean()
    expected = {
        "shared_accuracy": accuracy, "t_unk": rejected, "h_score": 2 * accuracy * rejected / (accuracy + rejected),
    }  # fmt: skip
    values: dict[str, list[float]] = {name: [] for name in expected}
    inside: dict[str, list[bool]] = {name: [] for name in expected}
    for i in range(120):
        rows, probability = draw(decided, count, np.random.default_rng([seed, i]))
        for name, found in measure(truth[rows], right[rows], probability).items():
            low, high = found.interval
            assert 0 <= low <= (low if found.value is None else found.value) <= high <= 100
            if found.value is not None:
                values[name].append(found.value)
                inside[name].append(low <= expected[name] <= high)
    for name, value in expected.items():
        assert np.mean(inside[name]) >= 0.88  # nominal 0.9
        if name != "h_score":  # a ratio, with a bias that vanishes with the sample
            assert np.mean(values[name]) == pytest.approx(value, abs=4)


def test_without_answers_of_a_kind_its_figure_is_not_measured() -> None:
    found = measure(np.asarray([0, 1]), np.asarray([True, True]), np.asarray([0.5, 0.5]))
    assert found["shared_accuracy"].value == 100
    assert found["t_unk"].value is None
    assert found["h_score"].value is None
    assert found["t_unk"].interval == (0, 100)


def answered(decided: Decided, truth: np.ndarray, count: int, seed: int) -> Answers:
    rows, probability = draw(decided, count, np.random.default_rng(seed))
    return Answers(rows, truth[rows], probability)


def figure(truth: np.ndarray, label: np.ndarray) -> float:
    known = truth != NONE
    accuracy, rejected = np.mean((label == truth)[known]), np.mean(label[~known] == NONE)
    return float(2 * accuracy * rejected / max(accuracy + rejected, 1e-9))


@pytest.mark.parametrize("present", [0.001, 0.999])
def test_a_threshold_that_is_far_off_moves_to_where_it_is_better(present: float) -> None:
    gains = []
    for seed in range(10):
        decided, truth, _ = population(500, seed)
        decided = replace(decided, threshold=present, cluster=np.zeros(500, int))
        choice = choose(decided, answered(decided, truth, 20, seed))
        before, after = (
            figure(truth, np.where(decided.score >= t, decided.best, NONE)) for t in (present, choice.threshold)
        )
        gains.append(after - before)
    assert np.mean(gains) > 0.1
    assert min(gains) > -0.1


def test_answers_that_agree_with_the_decision_change_nothing() -> None:
    rng = np.random.default_rng(0)
    known = np.arange(300) < 150
    score = np.where(known, rng.uniform(0.9, 1, 300), rng.uniform(0, 0.1, 300))
    best = rng.integers(0, 4, 300)
    decided, truth = Decided(score, best, np.zeros(300, int), 0.5, 4), np.where(known, best, NONE)
    choice = choose(decided, answered(decided, truth, 20, 0))
    assert choice.threshold == 0.5
    assert choice.merged == {}


def test_where_every_answer_is_known_nothing_is_rejected() -> None:
    decided, truth, _ = population(300, 1)
    answers = answered(decided, truth, 20, 0)
    all_known = Answers(answers.rows, decided.best[answers.rows], answers.probability)
    assert np.mean(decided.score < choose(decided, all_known).threshold) < 0.02
    none_known = Answers(answers.rows, np.full(20, NONE), answers.probability)
    assert np.mean(decided.score < choose(decided, none_known).threshold) > 0.98


def test_a_bound_on_rejections_holds() -> None:
    decided, truth, _ = population(400, 2)
    decided = replace(decided, threshold=0.001)
    answers = answered(decided, truth, 40, 0)
    assert np.mean(decided.score < choose(decided, answers).threshold) > 0.3
    assert np.mean(decided.score < choose(decided, answers, 0.3).threshold) <= 0.3


def test_a_cluster_whose_answers_name_one_class_is_merged_with_it() -> None:
    decided, truth, _ = population(400, 3)
    decided = replace(decided, threshold=0.5)
    members = decided.group == decided.classes + 2
    truth = np.where(members, 5, truth)
    rows = np.concatenate([np.flatnonzero(members)[:3], np.flatnonzero(~members)[:17]])
    answers = Answers(rows, truth[rows], np.full(20, 0.05))
    assert choose(decided, answers).merged[2] == 5
    mixed = truth.copy()
    mixed[rows[:3]] = [5, NONE, 4]
    assert 2 not in choose(decided, Answers(rows, mixed[rows], np.full(20, 0.05))).merged
    assert len(without_each(decided, answers)) == 20


def test_review_improves_a_poor_threshold_and_measures_it(
    strict: Model, target: tuple[np.ndarray, np.ndarray], oracle: Callable[[Question], str], tmp_path: Path
) -> None:
    X, y = target
    before = strict.predict(X)
    reviewed = review(strict, X, oracle, config=CONFIG)
    assert np.array_equal(strict.predict(X), before)  # what comes in is left as it is
    was, now = evaluate(strict, X, y), evaluate(reviewed, X, y)
    assert now["h_score"] > was["h_score"] + 20
    reviewed.save(tmp_path / "r.usfda")
    again = load(tmp_path / "r.usfda")
    assert np.array_equal(again.predict(X), reviewed.predict(X))
    found = again.deployment["review"]
    assert found == reviewed.deployment["review"]
    assert found["threshold"] == again.strictness == again.deployment["strictness"]
    assert (found["asked"], found["answered"]) == (20, 20)
    assert sum(found["answers"].values()) == 20  # type: ignore[arg-type]
    for name in ("shared_accuracy", "t_unk", "h_score"):
        low, high = found["measured"][name]["interval"]
        assert low <= now[name] <= high
    assert again.deployment["unknown_share"] == pytest.approx(now["unknown_share"], abs=0.01)


def test_forgetting_restores_the_decisions_and_the_card_exactly(
    strict: Model, target: tuple[np.ndarray, np.ndarray], oracle: Callable[[Question], str], tmp_path: Path
) -> None:
    X, _ = target
    once = review(strict, X, oracle, config=CONFIG)
    twice = review(once, X, oracle, count=10, seed=1, config=CONFIG)
    twice.save(tmp_path / "r.usfda")
    back = forget_review(load(tmp_path / "r.usfda"))
    back.save(tmp_path / "back.usfda")
    strict.save(tmp_path / "strict.usfda")
    assert (tmp_path / "back.usfda").read_bytes() == (tmp_path / "strict.usfda").read_bytes()
    with pytest.raises(InputError):
        forget_review(back)


def merged_of(model: Model) -> Model:
    """With cluster 1 merged with the first class."""
    assert isinstance(model.head, MixtureHead)
    assigned = np.full(len(model.head.bias) - model.head.classes, -1, np.float32)
    assigned[0] = 0
    head = replace(model.head, assigned=assigned)
    return Model(model.source_classes, model.vendor, head, None, model.card, model.taught, 0.5)


def test_a_merged_cluster_counts_as_its_class(
    strict: Model, target: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, _ = target
    merged = merged_of(strict)
    plain, found = strict.decide(X, 0.5), merged.decide(X)
    assert plain.cluster is not None
    assert found.cluster is not None
    assert plain.probability is not None
    assert found.probability is not None
    members = plain.cluster == 1
    assert members.any()
    assert found.known[members].all()
    assert (found.best[members] == 0).all()
    assert not (found.cluster == 1).any()
    assert found.probability.sum(1) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(found.probability[:, 1:-1], plain.probability[:, 1:-1])
    merged.save(tmp_path / "m.usfda")
    assert np.array_equal(load(tmp_path / "m.usfda").predict(X, 0.5), merged.predict(X))


def test_teaching_and_updating_make_a_merged_cluster_a_part_of_its_class(
    strict: Model, target: tuple[np.ndarray, np.ndarray]
) -> None:
    X, _ = target
    merged = merged_of(strict)
    members = strict.decide(X, 0.5).cluster == 1
    name = strict.classes_[0]
    taught = teach(merged, names={2: "giraffe"})
    assert isinstance(taught.head, MixtureHead)
    assert taught.head.merged == {}
    assert taught.deployment["joined"] == [name]
    assert np.mean(taught.predict(X[members]) == name) > 0.9
    more, _ = blobs([0, 1, 2, 7, 8], 10, shift=0.5, seed=5)
    assert adapt(merged, more, update=True, strictness=0.5, config=CONFIG).deployment["joined"] == [name]


def test_a_merged_cluster_is_exported(photos: Path, new_photos: Path, tmp_path: Path) -> None:
    client = adapt(procure(photos, backbone="pixels", method="mixture", config=CONFIG), new_photos, config=CONFIG)
    assert isinstance(client.head, MixtureHead)
    clusters = len(client.head.bias) - client.head.classes
    assert clusters
    client.head = replace(client.head, assigned=np.zeros(clusters, np.float32))
    export_onnx(client, tmp_path / "m.onnx")  # compares the file's answers with the model's
    assert (tmp_path / "m.onnx").is_file()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("y", 2), (" YES ", 2), ("none", NONE), ("None of these", NONE), ("s", None), ("", None), ("c0", 0), ("C1", 1),
        ("4", 3),
    ],
)  # fmt: skip
def test_answers_are_understood(
    strict: Model, target: tuple[np.ndarray, np.ndarray], said: str, meant: int | None
) -> None:
    assert Survey.of(strict, target[0], CONFIG).understand(said, "c2") == meant


@pytest.mark.parametrize("said", ["n", "no", "0", "5", "giraffe", "-1", "99999999999999999999"])
def test_answers_that_mean_nothing_are_errors(strict: Model, target: tuple[np.ndarray, np.ndarray], said: str) -> None:
    with pytest.raises(InputError):
        Survey.of(strict, target[0], CONFIG).understand(said, "c2")


@pytest.fixture
def files(strict: Model, target: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> Path:
    """A folder with a model and the vectors of its target."""
    strict.save(tmp_path / "client.usfda")
    np.savez(tmp_path / "target.npz", X=target[0])
    return tmp_path


def fill(file: Path, answer: Callable[[dict[str, str]], str]) -> None:
    fill_rows(file, [{**row, "answer": answer(row)} for row in read_rows(file)])


def read_rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as content:
        return list(csv.DictReader(content))


def asked(row: dict[str, str]) -> Question:
    return Question(int(row["path"]), row["path"], row["guess"], float(row["confidence"]), float(row["probability"]))


def test_answers_in_a_file(
    files: Path, oracle: Callable[[Question], str], target: tuple[np.ndarray, np.ndarray]
) -> None:
    model, vectors, ask = (str(files / name) for name in ("client.usfda", "target.npz", "ask.csv"))
    assert main(["review", model, vectors, "--write", ask, "--count", "25", "--seed", "3"]) == 0
    rows = read_rows(Path(ask))
    assert list(rows[0]) == ["path", "guess", "confidence", "probability", "answer"]
    assert len(rows) == 25
    assert all(row["answer"] == "" for row in rows)
    out = str(files / "out.usfda")
    assert main(["review", model, vectors, "--answers", ask, "-o", out]) == 2  # nothing is answered
    assert not Path(out).exists()
    fill(Path(ask), lambda row: oracle(asked(row)))
    assert main(["review", model, vectors, "--answers", ask, "-o", out, "--json", str(files / "r.json")]) == 0
    found = json.loads((files / "r.json").read_text())
    assert {"asked", "answered", "threshold", "measured"} <= set(found)
    assert set(found["measured"]) == {"shared_accuracy", "t_unk", "h_score"}
    assert (found["asked"], found["answered"]) == (25, 25)
    same = review(model, target[0], oracle, count=25, seed=3, config=CONFIG)
    assert same.deployment["review"]["measured"] == found["measured"]
    assert load(out).strictness == same.strictness
    back = str(files / "back.usfda")
    assert main(["review", out, "--forget-review", "-o", back]) == 0
    assert Path(back).read_bytes() == Path(model).read_bytes()
    assert main(["review", model, "--forget-review", "-o", back]) == 2


def test_images_have_their_paths_in_the_file(photos: Path, new_photos: Path, tmp_path: Path) -> None:
    procure(photos, backbone="pixels", method="mixture", config=CONFIG).save(tmp_path / "vendor.usfda")
    adapt(tmp_path / "vendor.usfda", new_photos, config=CONFIG).save(tmp_path / "client.usfda")
    ask, call = tmp_path / "ask.csv", ["review", str(tmp_path / "client.usfda"), str(new_photos)]
    assert main([*call, "--write", str(ask), "--count", "8"]) == 0
    rows = read_rows(ask)
    assert all(Path(row["path"]).is_relative_to(new_photos) for row in rows)
    fill(ask, lambda row: {"kind0": "kind0", "kind1": "kind1"}.get(Path(row["path"]).parent.name, "none"))
    assert main([*call, "--answers", str(ask), "-o", str(tmp_path / "out.usfda")]) == 0
    with zipfile.ZipFile(tmp_path / "out.usfda") as archive:
        assert str(new_photos).encode() not in archive.read("card.json")
    rows[0]["path"] = str(tmp_path / "other.png")
    fill_rows(ask, rows)
    assert main([*call, "--answers", str(ask), "-o", str(tmp_path / "other.usfda")]) == 2


def fill_rows(file: Path, rows: list[dict[str, str]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("probability", "0"), ("probability", "1.5"), ("probability", "nan"), ("probability", "often"),
        ("guess", "giraffe"), ("path", "9999"), ("answer", "perhaps"), ("answer", "n"),
    ],
)  # fmt: skip
def test_a_file_that_was_edited_wrongly_is_refused(
    files: Path, column: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["review", str(files / "client.usfda"), str(files / "target.npz")]
    ask = files / "ask.csv"
    assert main([*call, "--write", str(ask)]) == 0
    rows = read_rows(ask)
    for row in rows:
        row["answer"] = "y"
    rows[4][column] = value
    fill_rows(ask, rows)
    capsys.readouterr()
    assert main([*call, "--answers", str(ask), "-o", str(files / "out.usfda")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (files / "out.usfda").exists()


def test_calls_that_are_wrong(files: Path, strict: Model) -> None:
    model, vectors, out = (str(files / name) for name in ("client.usfda", "target.npz", "out.usfda"))
    strict.source_model.save(files / "vendor.usfda")
    for call in (
        [model, vectors],
        [model, "-o", out],
        [model, vectors, "-o", out, "--page"],  # vectors have no picture
        [model, vectors, "-o", out, "--page", "--write", str(files / "ask.csv")],
        [model, vectors, "-o", out, "--answers", str(files / "none.csv")],
        [str(files / "vendor.usfda"), vectors, "-o", out],
        [model, vectors, "-o", out, "--count", "0"],
    ):
        assert main(["review", *call]) == 2, call
    assert not Path(out).exists()


class Terminal:
    """``usfda review`` in a terminal of its own."""

    def __init__(self, cache: Path, *args: str):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "usfda", "--quiet", "review", *args],
            stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"USFDA_CACHE": str(cache), "TERM": "dumb"},
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.shown = self.unread = ""

    def read_until(self, text: str) -> str:
        """What is shown up to a text, which must appear."""
        while text not in self.unread:
            piece = self._read()
            assert piece, f"{text!r} is not shown:\n{self.shown}{self.unread}"
        seen, _, self.unread = self.unread.partition(text)
        return seen

    def _read(self) -> str:
        ready, _, _ = select.select([self.master], [], [], PATIENCE)
        assert ready, f"nothing more is shown:\n{self.shown}"
        try:
            piece = os.read(self.master, 4096).decode(errors="replace")
        except OSError:  # the other side is closed
            piece = ""
        self.shown += piece
        self.unread += piece
        return piece

    def type(self, line: str) -> None:
        os.write(self.master, f"{line}\n".encode())

    def end(self) -> int:
        while self._read():
            pass
        os.close(self.master)
        return self.process.wait(PATIENCE)


def questions(model: Path, vectors: Path, count: int) -> list[Question]:
    return Survey.of(model, str(vectors), CONFIG).questions(count)


def test_answers_in_a_terminal_interrupted_and_continued(
    files: Path, oracle: Callable[[Question], str], cache: Path, target: tuple[np.ndarray, np.ndarray]
) -> None:
    model, vectors, out = files / "client.usfda", files / "target.npz", files / "out.usfda"
    wanted = questions(model, vectors, 8)
    call = (str(model), str(vectors), "-o", str(out), "--count", "8")
    first = Terminal(cache, *call)
    for number, question in enumerate(wanted[:3], 1):
        first.read_until(f"{number}/8")
        assert f"is this {question.guess}?" in first.read_until("confidence")
        if number == 1:
            first.type("giraffe")  # is no class: it asks again
            first.read_until("which class")
        elif number == 2:
            first.type("n")
            first.read_until("which class")
        first.type(oracle(question))
    first.read_until("4/8")
    first.type("quit")
    assert first.end() == 130
    assert not out.exists()
    (left,) = (cache / "reviews").iterdir()
    assert set(json.loads(left.read_text())["answers"]) == {str(q.row) for q in wanted[:3]}

    second = Terminal(cache, *call)
    for number, question in enumerate(wanted[3:], 4):
        second.read_until(f"{number}/8")
        second.read_until("confidence")
        second.type(oracle(question))
    assert second.end() == 0
    assert "1/8" not in second.shown
    assert list((cache / "reviews").iterdir()) == []
    same = review(model, target[0], oracle, count=8, config=CONFIG)
    found = load(out).deployment["review"]
    assert found == same.deployment["review"]


def test_kept_answers_of_another_model_do_not_count(files: Path, cache: Path, strict: Model) -> None:
    vectors = files / "target.npz"
    wanted = questions(files / "client.usfda", vectors, 5)
    survey = Survey.of(strict, str(vectors), CONFIG)
    other = Survey.of(merged_of(strict), str(vectors), CONFIG)
    assert survey.key(wanted) == Survey.of(files / "client.usfda", str(vectors), CONFIG).key(wanted)
    assert survey.key(wanted) != other.key(wanted)
    assert survey.key(wanted) != survey.key(wanted[:4])


def changed(file: Path, out: Path, member: str, change: Callable[[bytes], bytes]) -> Path:
    """The same file with another content of a member."""
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content[member] = change(content[member])
    with zipfile.ZipFile(out, "w") as archive:
        for name in LIMITS:
            if name in content:
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content[name])
    return out


def card_with(file: Path, out: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The same file with another review in its card."""

    def edited(content: bytes) -> bytes:
        card = json.loads(content)
        change(card["deployment"]["review"])
        return json.dumps(card).encode()

    return changed(file, out, "card.json", edited)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(threshold=1.5),
        lambda r: r.update(asked=-1),
        lambda r: r.update(answered=10**6),
        lambda r: r.update(merged={"1": "giraffe"}),
        lambda r: r.update(merged={"first": "c0"}),
        lambda r: r["before"].update(strictness=-0.1),
        lambda r: r["before"].update(unknown_share=101),
        lambda r: r.pop("before"),
        lambda r: r.pop("measured"),
        lambda r: r["measured"]["t_unk"].update(interval=[0, 200]),
        lambda r: r["measured"]["t_unk"].update(interval=[50]),
        lambda r: r["measured"]["h_score"].update(value=0, interval=[50, 60]),
        lambda r: r["measured"]["h_score"].update(value="high"),
        lambda r: r["answers"].update(none=10**6),
    ],
)
def test_hostile_cards_are_refused(
    strict: Model,
    target: tuple[np.ndarray, np.ndarray],
    oracle: Callable[[Question], str],
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
) -> None:
    review(strict, target[0], oracle, config=CONFIG).save(tmp_path / "r.usfda")
    assert load(card_with(tmp_path / "r.usfda", tmp_path / "same.usfda", lambda r: None)).deployment["review"]
    with pytest.raises(InputError):
        load(card_with(tmp_path / "r.usfda", tmp_path / "hostile.usfda", change))


@pytest.mark.parametrize("value", [0.5, 7.0, -2.0, np.nan])
def test_clusters_that_are_merged_with_no_class_are_refused(strict: Model, tmp_path: Path, value: float) -> None:
    def edited(content: bytes) -> bytes:
        tensors = safetensors.numpy.load(content)
        tensors["mixture.assigned"][0] = value
        return safetensors.numpy.save(tensors)

    merged_of(strict).save(tmp_path / "m.usfda")
    same = changed(tmp_path / "m.usfda", tmp_path / "same.usfda", "tensors.safetensors", lambda content: content)
    assert load(same).classes_ == strict.classes_
    with pytest.raises(InputError):
        load(changed(tmp_path / "m.usfda", tmp_path / "hostile.usfda", "tensors.safetensors", edited))
