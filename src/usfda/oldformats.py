"""Model files of older formats, converted to the present format before they are validated like any untrusted file.

1. Release 0.1, before it had a mixture: networks alone.
2. Release 0.1: with the class statistics and the mixture of the default method.
3. 0.2 in development. The card names the head; the class statistics have a mean and a similarity quantile, the
   mixture its τ. Known and unknown are decided in another way: a file that decided as before still does
   (``FirstMixtureHead``).
4. 0.2 in development. The mixture has a coreset of its target.
5. 0.2 in development. The mixture has means of taught classes.
6. Release 0.2. The mixture has an outlier component; a file without one still decides as before. A hand-made rule
   separated known from unknown, and its check had other verdicts and figures.
7. 0.3 in development. The check names what is expected of each decision; the vendor's part may have a classifier of
   the backbone.
8. The default method is called ``mixture`` (before: ``usfda``) and the paper's method ``usfda`` (before: ``paper``).
   Heads and tensors have descriptive names.

Each step below uses the names of its own time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import InputError
from .methods.vendor import Shape

Card = dict[str, Any]
Shapes = Mapping[str, Shape]
Zeros = dict[str, Shape]


def _from_1(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    deployed = card["deployment"]
    if deployed is not None:
        deployed = {"strictness": 0.5, **deployed}
    return {**card, "deployment": deployed, "procurement": {"method": "paper", **card["procurement"]}}, {}


def _from_2(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    made = {"method": "all", **card["procurement"]}
    made["validation"] = {"head": "source", **made["validation"]}
    head = "paper" if "F_t.0.weight" in shapes else "usfda-0.1" if "mixture.bias" in shapes else "source"
    # The added values of 0 are used only where there are no networks, and release 0.1 made no such file.
    if "F_s.0.weight" not in shapes:
        raise InputError("its networks are missing")
    added: Zeros = {}
    if "geometry.whitener" in shapes:
        added = {"geometry.mean": shapes["geometry.whitener"][:1], "geometry.floor": ()}
    return {**card, "procurement": made, "head": head}, added


def _from_3(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    if card["head"] == "usfda":
        raise InputError("it was adapted by a version of usfda that was never released; adapt the vendor's file again")
    return card, {}


def _from_4(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    taught_none: Zeros = {"mixture.prototypes": (0, *shapes.get("mixture.mean", ()))}
    return card, taught_none if card["head"] == "usfda" else {}


def _from_5(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    return card, {"mixture.rest": ()} if card["head"] == "usfda" else {}


VERDICTS = {"better": "better", "unclear": "same", "worse": "kept"}


def _from_6(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    deployed = card["deployment"]
    if isinstance(deployed, dict) and isinstance(found := deployed.get("check"), dict):
        kept = {name: value for name, value in found.items() if name not in ("consistency", "weak", "called_unknown")}
        check = {**kept, "verdict": VERDICTS[found["verdict"]]}
        card = {**card, "deployment": {**deployed, "check": check}}
    return card, {}


METHODS = {"usfda": "mixture", "paper": "usfda"}
HEADS = {**METHODS, "usfda-0.1": "mixture-0.1", "source": "source-network", "prototypes": "class-means"}
TENSORS = {
    "geometry.whitener": "class_statistics.whitener",
    "geometry.prototypes": "class_statistics.means",
    "geometry.mean": "class_statistics.overall_mean",
    "geometry.cohesion": "class_statistics.within_class_similarity",
    "geometry.floor": "class_statistics.similarity_quantile",
    "mixture.summary": "mixture.coreset",
    "mixture.prototypes": "mixture.taught_means",
    "mixture.rest": "mixture.outlier",
}
DROPPED = "mixture.typicality"  # of format 6


def _renamed(values: Card, names: Mapping[str, Mapping[str, str]]) -> Card:
    """The values, with new texts under some keys."""
    return {key: names[key].get(value, value) if key in names else value for key, value in {**values}.items()}


def _from_7(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    card = _renamed(card, {"head": HEADS})
    made = _renamed(card["procurement"], {"method": METHODS})
    made["validation"] = _renamed(made["validation"], {"head": HEADS})
    deployed = card["deployment"]
    if deployed is not None:
        deployed = _renamed(deployed, {"method": METHODS})
        if "alone" in (check := dict(deployed.get("check", {}))):
            check["outliers"] = check.pop("alone")
            deployed["check"] = check
        if "rest" in (settings := dict(deployed["settings"])):
            settings["outlier"] = settings.pop("rest")
            deployed["settings"] = settings
    return {**card, "procurement": made, "deployment": deployed}, {}


STEPS = {1: _from_1, 2: _from_2, 3: _from_3, 4: _from_4, 5: _from_5, 6: _from_6, 7: _from_7}


def upgrade(card: Card, shapes: Shapes, number: int) -> tuple[Card, Zeros, dict[str, str]]:
    """Bring a card of format ``number`` to the present format.

    Returns
    -------
    card : dict
        The card in the present format.
    added : dict of str to shape
        The tensors of zeros that the present format has beyond those of the file, whose ``shapes`` are given.
    names : dict of str to str
        The present name of each tensor of the file that the present format has.
    """
    added: Zeros = {}
    for step in range(number, max(STEPS) + 1):
        card, zeros = STEPS[step](card, shapes)
        added |= zeros
    renamed = TENSORS if number <= 7 else {}
    if set(shapes) & set(renamed.values()):
        raise InputError("its tensors are not those of its format")
    dropped = {DROPPED} if number <= 6 and card["head"] == "mixture" else set()
    names = {name: renamed.get(name, name) for name in shapes if name not in dropped}
    return card, {renamed.get(name, name): shape for name, shape in added.items()}, names
