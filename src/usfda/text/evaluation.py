"""What an evaluation measured, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .words import count

# The names of the decisions, as everywhere.
DECISIONS = {"adapted": "adapted", "class_means": "class means", "source_network": "source network"}
MEANINGS = {  # of the metrics
    "h_score": "harmonic mean of shared accuracy and T_unk",
    "t_unk": "private samples called unknown",
    "shared_accuracy": "mean accuracy over the shared classes",
    "t_avg": "mean accuracy over the shared classes and unknown",
    "closed_accuracy": "shared accuracy without rejection",
    "auroc": "known against unknown, by score",
    "ece": "calibration error of the score",
    "unknown_share": "samples called unknown",
}
COLUMNS = {
    "h_score": "H", "t_unk": "T_unk", "shared_accuracy": "shared", "t_avg": "T_avg", "closed_accuracy": "closed",
    "auroc": "AUROC", "ece": "ECE", "unknown_share": "unknown",
}  # fmt: skip
WORST = 10  # classes, and as many confusions, that are listed


def table(result: Mapping[str, Any], *, adapted: bool) -> list[str]:
    """A line for each decision, in percent; ``adapted``: the model was adapted."""
    rows: dict[str, Mapping[str, Any]] = {"adapted": result} if adapted else {}
    rows |= {key: result[key] for key in ("class_means", "source_network") if result[key] is not None}
    width = max(map(len, DECISIONS.values()))
    lines = [" ".join([f"{'percent':<{width}}", *(f"{name:>7}" for name in COLUMNS.values())])]
    for key, of in rows.items():
        cells = ("–" if of[metric] is None else f"{of[metric]:.1f}" for metric in COLUMNS)
        lines.append(" ".join([f"{DECISIONS[key]:<{width}}", *(f"{cell:>7}" for cell in cells)]))
    return lines


def legend() -> list[str]:
    """What each column of the table means."""
    return [f"{name}: {MEANINGS[metric]}" for metric, name in COLUMNS.items()]


def details(result: Mapping[str, Any]) -> Iterator[str]:
    """Which decision the model uses, which classes are shared, the worst classes and the most frequent confusions."""
    yield f"the model uses: {DECISIONS[result['uses']]}{_better(result)}"
    shared, private = result["shared_classes"], result["private_classes"]
    yield f"{count(result['samples'], 'sample')}; {count(len(shared), 'shared class')}: {', '.join(shared) or 'none'}"
    yield f"counted as unknown, {count(len(private), 'class')}: {', '.join(private) or 'none'}"
    accuracy = sorted((of["accuracy"], name, of["samples"]) for name, of in result["per_class"].items())
    worst = [f"{name} {value:.0f} % of {n}" for value, name, n in accuracy[:WORST] if value < 100]
    if worst:
        yield f"worst classes: {', '.join(worst)}"
    labels, matrix = result["confusion"]["labels"], result["confusion"]["matrix"]
    pairs = [(n, labels[i], labels[j]) for i, row in enumerate(matrix) for j, n in enumerate(row) if n and i != j]
    if pairs:
        pairs.sort(key=lambda pair: (-pair[0], *pair[1:]))
        yield "confused: " + ", ".join(f"{is_} labelled {called} ({n})" for n, is_, called in pairs[:WORST])


def _better(result: Mapping[str, Any]) -> str:
    """Whether another decision is better by these labels."""
    key = "t_avg" if result["h_score"] is None else "h_score"
    others = {name: result[name][key] for name in ("class_means", "source_network") if result[name] is not None}
    best = max(others, key=lambda name: others[name], default=None)
    if best is None or others[best] <= result[key]:
        return ""
    figures = f"{COLUMNS[key]} {others[best]:.1f} instead of {result[key]:.1f}"
    return f"; by these labels the {DECISIONS[best]} would be better: {figures}"


def taught(names: list[str]) -> str:
    """Which classes count as unknown for the other decisions."""
    return f"only the adapted decision has the taught classes: {', '.join(names)}"


def nothing_shared(labelled: str) -> str:
    """That every sample counts as unknown."""
    return f"no class of {labelled} is a class of the model: all samples count as unknown"


def suspect(name: str, other: str) -> str:
    """A class that may be one of the model's under another name."""
    how = f"--rename FILE with the line {name},{other}"
    return f"{name} counts as unknown but may be the model's class {other}; if so, give {how}"
