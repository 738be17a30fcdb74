"""The sentences of a report."""

from __future__ import annotations

from collections.abc import Mapping

from .words import be, count, listed, named_counts, share

LOSSES = {
    "L_CE": "separates the classes and the negatives",
    "L_v": "vectors reconstructed from their latent form",
    "L_u": "latent forms reconstructed from their vectors",
    "L_p": "each class near its own prior",
    "L_d1": "separates known from unknown",
    "L_d2": "low entropy within each of the two",
}
ACCURACY = "source accuracy after each round, in percent"
NAMED = 5  # images that could not be read


def answers(unknown: int, classes: Mapping[str, int], word: str) -> list[str]:
    """How many samples have each label, the most important first; ``word`` is what a sample is called."""
    labelled = sum(classes.values())
    samples = labelled + unknown
    lines = [
        f"of {count(samples, word)}, {labelled} {be(labelled)} labelled with a class and {unknown} {be(unknown)} "
        f"called unknown ({share(100 * unknown / samples)})"
    ]
    found = sorted((name for name, n in classes.items() if n), key=lambda name: -classes[name])
    if found:
        lines.append(f"labels: {named_counts({name: classes[name] for name in found})}")
    if absent := [name for name, n in classes.items() if not n]:
        lines.append(f"classes without any {word}: {listed(absent)}")
    return lines


def measured(shared_accuracy: float | None, t_unk: float | None) -> str:
    """The measured quality where there are labels; in percent, None where there is nothing of the kind."""
    parts = []
    if shared_accuracy is not None:
        parts.append(f"{shared_accuracy:.0f} % of the samples of a known class are labelled correctly, on average")
    if t_unk is not None:
        parts.append(f"{t_unk:.0f} % of the samples of other classes are called unknown")
    return f"measured with the labels: {', and '.join(parts)}"


def drawn(shown: int, samples: int) -> str:
    """That the report has a part of the samples."""
    return f"this report shows {shown:,} of the {samples:,} samples, drawn at random"


def unreadable(names: list[str]) -> str:
    """Which images could not be read."""
    named = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
    return f"{count(len(names), 'more image')} could not be read and are not counted: {named}"
