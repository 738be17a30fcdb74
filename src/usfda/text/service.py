"""What the service answers and logs, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .words import are, count

RUNNING = "an adaptation is running"
NOT_READY = "no adaptation is ready"
NO_ADAPTATION = "there is no adaptation"
NO_EARLIER = "there is no earlier model"
NO_CLUSTERS = "the model has no clusters yet; adapt it first"
UNDECIDED = "accept or discard the adaptation first"
DISCARDED = "the adaptation was discarded"
DAMAGED = "damaged: it cannot be decoded"
KILLED = "its process was killed; perhaps memory ran out. The present model continues; try again"


def too_few(kept: int, needed: int) -> str:
    """Too few images are kept for an adaptation."""
    return f"{are(kept, 'image')} kept; an adaptation needs {needed}"


def too_few_new(new: int, needed: int) -> str:
    """Too few kept images are new to the model."""
    return f"{are(new, 'kept image')} new to this model; an adaptation needs {needed}: send others"


def begins(images: int) -> str:
    """An adaptation starts."""
    return f"an adaptation to {count(images, 'image')} starts"


def failed(reason: str) -> str:
    """An adaptation failed."""
    return f"the adaptation failed: {reason}"


def not_kept(images: int, reason: object) -> str:
    """Images that were answered and could not be kept."""
    return f"{are(images, 'image')} not kept: {reason}"


def other_model(what_to_do: str) -> str:
    """The request is about a model that serves no more."""
    return f"another model serves now; {what_to_do}"


def now_serving(sha256: str, why: str) -> str:
    """Another model serves."""
    return f"now serving model {sha256[:12]}, which {why}"


def taught(names: Mapping[int, str], known: Collection[str]) -> str:
    """What a model was taught."""
    parts = [f"cluster {c} as {'more of' if name in known else 'the new class'} {name}" for c, name in names.items()]
    return f"was taught {', '.join(parts)}"


def similar_name(name: str, other: str) -> str:
    """A taught class whose name differs from a known one in upper and lower case alone."""
    return f"{name} is a separate class beside {other}; if they are the same, roll back and name the cluster {other}"
