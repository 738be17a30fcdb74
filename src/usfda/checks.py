"""What can be told of an adaptation without a label: does it help, how much is unknown, which classes are absent."""

from __future__ import annotations

from typing import Any

import numpy as np

from .mixture import Graph

WEAK = 0.4  # evidence below which the share of unknowns is a guess
# How far the estimated share of unknowns was off, by evidence, in nine of ten tasks of the development suite: it was
# rather too high than too low.
EVIDENCE = (0.3, 0.5, 0.7, 0.9)
TOO_HIGH = (1.0, 0.4, 0.22, 0.18)
TOO_LOW = (1.0, 0.2, 0.1, 0.06)
ABSENT = 0.1  # of the samples of a usual class: a class with fewer seems absent
BETTER, WORSE = 0.05, 0.1  # gain and loss of consistency from which on a decision looks better or worse


def consistency(labels: np.ndarray, graph: Graph) -> float | None:
    """Share of neighbours with the same label beyond what chance gives (Cohen's κ); None where all labels are one."""
    _, y = np.unique(labels, return_inverse=True)
    pairs = graph.weight.tocoo()
    chance = float(np.sum((np.bincount(y) / len(y)) ** 2))
    if chance == 1 or pairs.data.sum() == 0:
        return None
    same = float(pairs.data @ (y[pairs.row] == y[pairs.col]) / pairs.data.sum())
    return (same - chance) / (1 - chance)


def check(
    graph: Graph, source: np.ndarray, adapted: np.ndarray, p: np.ndarray, classes: list[str], evidence: float
) -> dict[str, Any]:
    """``source`` and ``adapted`` are the labels before and after, ``p`` the mixture's probabilities."""
    share = float(1 - p[:, : len(classes)].sum(1).mean())
    noise = 1.64 * np.sqrt(0.1 / len(p))
    low = max(0.0, share - np.interp(evidence, EVIDENCE, TOO_HIGH) - noise)
    high = min(1.0, share + np.interp(evidence, EVIDENCE, TOO_LOW) + noise)
    before, after = consistency(source, graph), consistency(adapted, graph)
    verdict = "unclear"
    if before is not None and after is not None:
        if after > before + BETTER:
            verdict = "better"
        elif after < before - WORSE and evidence >= WEAK:  # with less, next to all is unknown and κ means little
            verdict = "worse"
    mass = p[:, : len(classes)].sum(0)
    usual = np.median(mass[mass >= 1]) if (mass >= 1).any() else 1.0
    return {
        "verdict": verdict,
        "consistency": {"source": before, "adapted": after},
        "changed": round(100 * float(np.mean(source != adapted)), 2),
        "evidence": round(evidence, 4),
        "weak": evidence < WEAK,
        "unknown_estimate": round(100 * share, 2),
        "unknown_interval": [round(100 * float(x), 2) for x in (low, high)],
        "absent": [name for name, m in zip(classes, mass, strict=True) if m < ABSENT * usual],
    }


def describe(card: dict[str, Any]) -> list[str]:
    """The findings of a deployment's card in sentences, the most important first."""
    found = card.get("check")
    if found is None:
        return []
    low, high = found["unknown_interval"]
    both = found["consistency"]
    share = f"{found['unknown_estimate']:.0f} % unknown, likely between {low:.0f} and {high:.0f} %"
    lines = [f"about {share}" if not found["weak"] else f"perhaps {share}: the evidence is weak"]
    figures = {name: "one label for all" if k is None else f"{k:.2f}" for name, k in both.items()}
    why = f"agreement of neighbours on their label: {figures['adapted']}, source model {figures['source']}"
    lines.append(
        {
            "better": f"looks better than the source model ({why})",
            "unclear": f"better or worse than the source model cannot be told ({why})",
            "worse": f"looks worse than the source model, so the source model's decision was kept ({why})",
        }[found["verdict"]]
    )
    if found["absent"]:
        lines.append(f"source classes that seem absent: {', '.join(found['absent'])}")
    if found.get("clusters"):
        sizes = ", ".join(f"{name} ({n})" for name, n in found["clusters"].items())
        lines.append(f"the unknown form {len(found['clusters'])} clusters, with samples: {sizes}")
    return lines
