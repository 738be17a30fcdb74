"""Model files of older formats, converted to the present one before they are checked like any untrusted file.

1. Of release 0.1, before it had method ``usfda``: networks alone.
2. Of release 0.1: with the geometry and the mixture of method ``usfda``.
3. Of 0.2 in development. The card names the head; the geometry has its mean and floor, the mixture its τ. What is
   unknown is decided in another way: a file that decided as before still does (``FirstUsfdaHead``).
4. Of 0.2 in development. The mixture has a summary of its target.
5. Of 0.2 in development. The mixture has prototypes of taught classes.
6. Of 0.2. The mixture has an outlier component; a file without one still decides as before. Known
   and unknown were separated by a hand-made rule, whose check had other verdicts and figures.
7. The check names what is expected of each decision; the vendor's part may have a classifier of the backbone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import InputError
from .methods.heads import FirstUsfdaHead, PaperHead, SourceHead, UsfdaHead
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
    made["validation"] = {"head": SourceHead.name, **made["validation"]}
    head = PaperHead if "F_t.0.weight" in shapes else FirstUsfdaHead if "mixture.bias" in shapes else SourceHead
    # Mean and floor matter where there are no networks, and release 0.1 made none without.
    if "F_s.0.weight" not in shapes:
        raise InputError("its networks are missing")
    added: Zeros = {}
    if "geometry.whitener" in shapes:
        added = {"geometry.mean": shapes["geometry.whitener"][:1], "geometry.floor": ()}
    return {**card, "procurement": made, "head": head.name}, added


def _from_3(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    if card["head"] == UsfdaHead.name:
        raise InputError("it was adapted by a version of usfda that was never released; adapt the vendor's file again")
    return card, {}


def _from_4(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    taught_none: Zeros = {"mixture.prototypes": (0, *shapes.get("mixture.mean", ()))}
    return card, taught_none if card["head"] == UsfdaHead.name else {}


def _from_5(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    return card, {"mixture.rest": ()} if card["head"] == UsfdaHead.name else {}


VERDICTS = {"better": "better", "unclear": "same", "worse": "kept"}
OF_6 = "mixture.typicality"


def _from_6(card: Card, shapes: Shapes) -> tuple[Card, Zeros]:
    deployed = card["deployment"]
    if isinstance(deployed, dict) and isinstance(found := deployed.get("check"), dict):
        kept = {name: value for name, value in found.items() if name not in ("consistency", "weak", "called_unknown")}
        check = {**kept, "verdict": VERDICTS[found["verdict"]]}
        card = {**card, "deployment": {**deployed, "check": check}}
    return card, {}


STEPS = {1: _from_1, 2: _from_2, 3: _from_3, 4: _from_4, 5: _from_5, 6: _from_6}


def upgrade(card: Card, shapes: Shapes, number: int) -> tuple[Card, Zeros, set[str]]:
    """Bring a card of format ``number`` to the present format.

    Returns
    -------
    card : dict
        What the present format would have in its place.
    added : dict of str to shape
        The tensors of zeros that the present format has beyond those of the file, whose ``shapes`` are given.
    dropped : set of str
        The tensors of the file that the present format does not have.
    """
    added: Zeros = {}
    for step in range(number, max(STEPS) + 1):
        card, zeros = STEPS[step](card, shapes)
        added |= zeros
    return card, added, {OF_6} if number <= 6 and card["head"] == UsfdaHead.name else set()
