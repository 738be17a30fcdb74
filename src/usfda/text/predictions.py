"""A prediction as a line of a table."""

from __future__ import annotations

from collections.abc import Sequence


def line(
    path: str, label: str, score: float, ssm: float | None, top: Sequence[tuple[str, float]], cluster: int | None, *,
    known: bool,
) -> str:  # fmt: skip
    """Of an unknown sample without the shares of the classes, which are not probabilities that it is of a class."""
    shown = f"{label} (cluster {cluster})" if cluster else label
    of_ssm = "" if ssm is None else f"  ssm {ssm:.2f}"
    best = ", ".join(f"{name} {share:.2f}" for name, share in top)
    return f"{shown:<20} score {score:.2f}{of_ssm}  {path}" + (f"  ({best})" if known else "")


def not_adapted(model: str) -> str:
    """That a vendor's file labels images of another domain."""
    return f"note: {model} was not adapted to these images; usfda adapt does that, without labels"
