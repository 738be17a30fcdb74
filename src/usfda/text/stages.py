"""The warnings of the stages: about what is given to them, before or while they work."""

from __future__ import annotations

from collections.abc import Sequence

from .words import count


def starts_anew(taught: Sequence[str]) -> str:
    """A model that was adapted is adapted without --update."""
    lost = f", without the taught classes {', '.join(taught)}" if taught else ""
    return f"the model was adapted before: this starts again from the vendor's part{lost}; --update continues instead"


def few_samples(samples: int, enough: int) -> str:
    """A target that is too small."""
    return f"{count(samples, 'target sample')}: too few for a reliable adaptation; use {enough} or more"


def one_sample(*, update: bool) -> str:
    """A target of one sample, or of copies of one."""
    kept = "earlier decision" if update else "vendor's decision"
    return f"one target sample, or copies of one, are too few to adapt to: the {kept} is kept"


def contradictions(samples: int, one: str, other: str) -> str:
    """Samples that are the same but for their labels."""
    such = f"such as {one} and {other}; correct their labels"
    return f"samples with the same content in different classes: {samples}, {such}"


def similar_name(name: str, other: str) -> str:
    """A taught class whose name differs from a known one in upper and lower case alone."""
    how = f"--forget {name} and teach it as {other}"
    return f"{name} becomes a class beside the model's {other}; if they are the same, {how}"


def other_labels(differing: int, examples: int, place: str, label: str, right: str) -> str:
    """Examples that have another label after teaching; ``place`` is one of them, or empty."""
    such = f"{place}, " if place else ""
    return (
        f"examples that still have another label: {differing} of {examples}, such as {such}labelled {label} instead of "
        f"{right}; more examples may help"
    )
