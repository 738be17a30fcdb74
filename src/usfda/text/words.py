"""Counts, plurals and lists of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SHOWN = 8  # names that a sentence lists


def count(n: int, word: str) -> str:
    """``1 image``, ``2 images``."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}{'es' if word.endswith('s') else 's'}"
    return f"{n} {word if n == 1 else plural}"


def be(n: int) -> str:
    """``is`` or ``are``."""
    return "is" if n == 1 else "are"


def are(n: int, word: str) -> str:
    """``1 image is``, ``2 images are``."""
    return f"{count(n, word)} {be(n)}"


def listed(names: Sequence[str]) -> str:
    """``mug, pen``; of many names, the first and how many more."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def named_counts(counts: Mapping[str, int]) -> str:
    """``mug (12), pen (3)``, likewise."""
    return listed([f"{name} ({n})" for name, n in counts.items()])


def share(percent: float | None) -> str:
    """``12.5 %``; a dash where it is undefined."""
    return "–" if percent is None else f"{percent:.1f} %"
