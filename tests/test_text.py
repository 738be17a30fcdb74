"""The wording of all messages: one snapshot, ``tests/text.txt``. ``python tests/test_text.py`` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from usfda.card import Card, Procurement
from usfda.methods.findings import Cluster, Findings, Taught
from usfda.text import (
    commands,
    evaluation,
    findings,
    model,
    predictions,
    procurement,
    report,
    review,
    service,
    stages,
    teaching,
)
from usfda.text.words import are, count, named_counts

STORED = Path(__file__).with_name("text.txt")
FILE = "my client.usfda"


def found(**more: Any) -> Findings:
    """An adaptation that was expected to be good."""
    values: dict[str, Any] = {
        "method": "mixture", "samples": 200, "earlier_samples": 0, "strictness": 0.5, "unknown_share": 24.0,
        "unknown_estimate": 25.0, "unknown_interval": (15.0, 35.0), "verdict": "better",
        "expected": {"adapted": 90.0, "class_means": 70.0, "source_network": None}, "decision": "learned",
        "absent": ("mug",), "clusters": (Cluster(1, 30, ("a.jpg", "b.jpg")), Cluster(2, 1)), "outliers": 1,
        "taught": (), "joined": (),
    }  # fmt: skip
    return Findings(**values | more)


UPDATED = found(earlier_samples=100, repeated=3, relabelled=2, decision="simple")
TAUGHT = found(taught=(Taught("giraffe", 12, 1, 2),), joined=("pen",))
BOUNDED = found(strictness=0.2, reject_at_most=10.0, unknown_share=10.0)
STRICT = found(strictness=0.7, clusters=(), expected={"adapted": 70.0, "class_means": 69.0}, verdict="same")
BAD = found(
    expected={"adapted": 30.0, "class_means": 50.0}, verdict="kept", unknown_interval=(0.0, 100.0), clusters=(),
    outliers=0, absent=(),
)  # fmt: skip
PAPER = found(
    method="usfda", unknown_estimate=None, unknown_interval=None, verdict=None, expected={}, decision=None, absent=(),
    clusters=(), outliers=0,
)  # fmt: skip

PROCURED: Procurement = {
    "method": "all", "classes": {"mug": 12, "pen": 1}, "settings": {"holdout": 0.1}, "seed": 0,
    "validation": {"head": "class-means", "samples": 4, "accuracy": 75.0, "rejected": 25.0},
    "seconds": {"features": 1.0, "class_statistics": 0.5}, "versions": {"usfda": "1.0"},
    "negatives": {"kind": "composite", "classes": 6, "samples": 200},
    "training": {"iterations": 10, "batch": 64, "lr": 0.0001, "accuracy": [50.0, 75.0]},
    "privacy": {
        "private": False, "least_images": 1,
        "membership": {"attack": "covariance, with 8 directions", "auc": 1.0, "members": 9, "others": 4},
    },
}  # fmt: skip
ALONE: Procurement = {**PROCURED, "method": "usfda"}
PRIVATE: Procurement = {
    **PROCURED,
    "method": "mixture",
    "privacy": {
        "private": True, "least_images": 10,
        "membership": {"attack": "means", "auc": 0.62, "members": 9, "others": 4},
    },
}  # fmt: skip
NOISY: Procurement = {
    **PROCURED,
    "validation": {"head": "class-means", "samples": 0, "accuracy": None, "rejected": None},
    "privacy": {
        "private": True, "least_images": 10,
        "noise": {"epsilon": 3.0, "delta": 1e-5, "sigma": 1.0, "auc_bound": 0.694},
    },
}  # fmt: skip
CARD: Card = {"procurement": PROCURED, "deployment": None, "backbone": {"name": "mine", "sha256": "ab", "record": {}}}

SCORES: dict[str, Any] = {
    "t_avg": 60.0, "t_unk": 40.0, "h_score": 53.3, "shared_accuracy": 80.0, "closed_accuracy": 90.0, "auroc": 70.0,
    "ece": 9.0, "unknown_share": 30.0,
}  # fmt: skip
RESULT: dict[str, Any] = {
    **SCORES, "samples": 10, "shared_classes": ["mug"], "private_classes": ["pen", "tap"],
    "per_class": {"mug": {"accuracy": 80.0, "samples": 5}, "pen": {"accuracy": 40.0, "samples": 5}},
    "confusion": {"labels": ["mug", "unknown"], "matrix": [[4, 1], [3, 2]]}, "uses": "adapted",
    "class_means": SCORES | {"h_score": 60.0}, "source_network": None,
}  # fmt: skip


def messages() -> Iterator[tuple[str, list[str]]]:
    """Every message, with the name of what makes it."""
    yield "words", [count(1, "class"), count(2, "class"), count(2, "body"), are(1, "image"), are(2, "image")]
    yield "named counts", [named_counts({f"c{i}": i for i in range(10)})]
    for name, one in {
        "good": found(), "updated": UPDATED, "taught": TAUGHT, "bounded": BOUNDED, "strict": STRICT, "bad": BAD,
        "paper": PAPER,
    }.items():  # fmt: skip
        yield f"adapt, {name}", [findings.result(FILE, one), *findings.describe(one), *findings.examples(one)]
        yield f"next steps, {name}", [f"{s.name}: {s.command}  {s.why}" for s in commands.next_steps(one, FILE, "a b")]
    yield "next steps, vendor", [s.command for s in commands.next_steps(None, FILE, "a", backbone="onnx:FILE")]
    yield "adapt, more", [
        findings.NOT_ADAPTED, findings.OF_TARGET, findings.REPEATED, findings.own_file("a.usfda", "a.pub", FILE)
    ]  # fmt: skip
    for name, card in {"all": PROCURED, "usfda": ALONE, "private": PRIVATE, "noise": NOISY}.items():
        yield f"procure, {name}", [
            procurement.result(FILE, card), *procurement.details(card), *procurement.leaks(card),
            procurement.privacy_sentence(card["privacy"]),
        ]  # fmt: skip
    yield "progress", [procurement.label("networks", part) for part in procurement.PURPOSES]
    pairs = [*model.of_card(["mug", "pen"], "mixture", 8, CARD, None, complete=False)]
    pairs += model.of_file(8, {"card.json": 2_000_000}, "cd", "ef", "my client.usfda.sig", graph=True)
    yield "inspect", [f"{key}: {text}" for key, text in pairs]
    yield "page", model.page("model.usfda", ["mug", "pen"], CARD, TAUGHT).splitlines()
    yield "evaluate", [
        *evaluation.table(RESULT, adapted=True), *evaluation.legend(), *evaluation.details(RESULT),
        evaluation.taught(["giraffe"]), evaluation.nothing_shared("photos/"), evaluation.suspect("Mugs", "mug"),
    ]  # fmt: skip
    top = [("mug", 0.9), ("pen", 0.1)]
    yield (
        "predict",
        [
            predictions.line("a.jpg", "mug", 0.9, 2.5, top, None, known=True),
            predictions.line("b.jpg", "unknown", 0.1, None, top, 3, known=False),
            predictions.not_adapted(FILE),
        ],
    )
    yield "teach", [
        teaching.result(FILE, 3, TAUGHT), teaching.joins(1, "mug"), teaching.RENUMBERED,
        *(f"{s.name}: {s.command}  {s.why}" for s in teaching.next_steps(TAUGHT, FILE, None)),
    ]  # fmt: skip
    yield "stages", [
        stages.starts_anew(["giraffe"]), stages.starts_anew([]), stages.few_samples(3, 40),
        stages.one_sample(update=False), stages.one_sample(update=True), stages.contradictions(2, "a", "b"),
        stages.similar_name("Mug", "mug"), stages.other_labels(1, 5, "a.jpg", "mug", "pen"),
        stages.other_labels(1, 5, "", "mug", "pen"),
    ]  # fmt: skip
    yield "report", [
        *report.answers(1, {"mug": 2, "pen": 0, "tap": 1}, "image"), report.measured(80.0, 40.0),
        report.measured(None, 40.0), report.drawn(30, 6000), report.unreadable(list("abcdef")),
        *report.LOSSES.values(), report.ACCURACY,
    ]  # fmt: skip
    value = {"value": 80.0, "interval": [60.0, 95.0]}
    figures = {"shared_accuracy": value, "t_unk": {"value": None, "interval": [0.0, 100.0]}, "h_score": value}
    outcome = {
        "before": {"strictness": 0.5}, "threshold": 0.4, "merged": {"1": "mug"}, "answered": 9, "asked": 10,
        "measured": figures,
    }  # fmt: skip
    same = {**outcome, "threshold": 0.5, "merged": {}}
    yield "review", [
        review.KEYS, review.KINDS, review.NO_ANSWER, review.NOT_ADAPTED, review.NO_REVIEW, review.WHICH,
        review.numbered(["mug", "pen"]), review.question(1, 10, "a.jpg", "mug", 0.9),
        review.not_understood("perhaps", "ask.csv, line 3"), review.ambiguous("no"),
        *review.written("ask.csv", 10, ["mug"], "usfda review …"), review.page_at("http://127.0.0.1:1/"),
        review.kept(3, 10), review.going_on(3, 10), review.forgotten(FILE, 0.5), *review.result(FILE, outcome),
        *review.result(FILE, same),
    ]  # fmt: skip
    yield "service", [
        service.RUNNING, service.NOT_READY, service.NO_ADAPTATION, service.NO_EARLIER, service.NO_CLUSTERS,
        service.UNDECIDED, service.DISCARDED, service.DAMAGED, service.too_few(1, 16), service.too_few_new(0, 2),
        service.begins(20), service.failed(service.KILLED), service.not_kept(1, "disk full"),
        service.other_model("look at it, then ask again"), service.now_serving("0123456789abcdef", "was adapted"),
        service.taught({1: "mug", 2: "new"}, ["mug"]), service.similar_name("Mug", "mug"),
    ]  # fmt: skip


def snapshot() -> str:
    """All messages as one text."""
    return "\n".join(f"## {name}\n" + "\n".join(lines) + "\n" for name, lines in messages())


def test_the_wording() -> None:
    assert snapshot() == STORED.read_text(encoding="utf-8")


if __name__ == "__main__":
    STORED.write_text(snapshot(), encoding="utf-8")
