"""What a vendor made, and what its file leaks, in sentences."""

from __future__ import annotations

from ..card import Privacy, Procurement, Training
from .words import count, named_counts, share

# The parts of a procurement, in their order, and the purpose of each.
PURPOSES = {
    "features": "every method",
    "class_statistics": "method mixture",
    "negatives": "method usfda",
    "networks": "method usfda, the source network and the SSM",
}
CERTAIN = 0.995  # AUC from which on an attack is as good as certain


def label(text: str, part: str) -> str:
    """The label of a progress bar: what runs, and its purpose."""
    return f"{text} (for {PURPOSES[part]})"


def result(file: str, card: Procurement) -> str:
    """The result, in one line."""
    classes = card["classes"]
    made = f"{file}: {count(len(classes), 'class')}, {count(sum(classes.values()), 'sample')}, for {methods(card)}"
    if not (checked := card["validation"])["samples"]:
        return made
    return f"{made}; {share(checked['accuracy'])} of {count(checked['samples'], 'held-out sample')} labelled correctly"


def methods(card: Procurement) -> str:
    """The methods that a file serves."""
    return "both methods" if card["method"] == "all" else f"method {card['method']}"


def details(card: Procurement) -> list[str]:
    """How long each part took, and what it gave."""
    noise = ", with noise" if "noise" in card.get("privacy", {}) else ""
    lines = [f"samples: {named_counts(card['classes'])}{noise}"]
    lines += [label(part.replace("_", " "), part) + f": {seconds:.1f} s" for part, seconds in card["seconds"].items()]
    if "negatives" in card:
        lines.append("negative classes: {classes}, {kind}".format(**card["negatives"]))
        lines.append(f"networks: {training(card['training'])}")
    if (checked := card["validation"])["samples"]:
        lines.append(f"held-out samples called unknown: {share(checked['rejected'])}, with head {checked['head']}")
    return lines


def training(of: Training) -> str:
    """How long the vendor's networks were trained, and the accuracy of each round."""
    text = "{iterations} iterations in batches of {batch}, learning rate {lr:g}".format(**of)
    rounds = ", ".join(f"{value:.1f}" for value in of["accuracy"])
    return text + (f"; source accuracy after each round: {rounds} %" if rounds else "")


def leaks(card: Procurement) -> list[str]:
    """What the file leaks about the vendor's images, and what would change that."""
    if (privacy := card.get("privacy")) is None:  # in files of older versions
        return []
    lines = ["privacy: the file holds statistics of your images, and no image"]
    if (noise := privacy.get("noise")) is not None:
        lines.append(f"  {privacy_sentence(privacy)}")
        return [
            *lines,
            f"  each further file of the same images adds its own ε of {noise['epsilon']:g} (docs/privacy.md)",
        ]
    whether = "with the file and an image one can tell whether the image was among yours"
    if (found := privacy.get("membership")) is not None:
        certain = found["auc"] >= CERTAIN
        how = "with certainty" if certain else f"to some degree: AUC {found['auc']:.2f} or more, where 0.5 is chance"
        lines.append(f"  {whether}, {how}")
    elif not privacy["private"]:
        lines.append(f"  {whether}")
    if privacy["private"]:
        return [
            *lines,
            "  --epsilon E adds a proven bound on this; it costs several points of accuracy (docs/privacy.md)",
        ]
    if card["method"] == "usfda":
        return [*lines, "  --for mixture --private leaks less (docs/privacy.md)"]
    return [
        *lines,
        "  --private makes this a guess; with the default backbone it usually costs less than a point of accuracy",
        "  --epsilon E adds a proven bound; it costs several points (docs/privacy.md)",
    ]


def privacy_sentence(privacy: Privacy) -> str:
    """The privacy of the source, from the card."""
    if "noise" in privacy:
        text = "differentially private, ε = {epsilon:g} with δ = {delta:g}".format(**privacy["noise"])
        if (bound := f"{privacy['noise']['auc_bound']:.2f}") == "1.00":  # which is above that of any attack
            return f"{text}: at this ε theory gives no useful bound on how well an attack finds members of the source"
        return f"{text}: no attack finds members of the source with an AUC above {bound}"
    text = f"private, {privacy['least_images']} images or more of every class" if privacy["private"] else "not private"
    if (found := privacy.get("membership")) is None:
        return text
    attack = found["attack"].partition(",")[0]  # without its parameters
    measured = f"by the {attack}, on {found['members']} images of the source and {found['others']} others"
    return (
        f"{text}; with the file and an image, an attack finds out whether the image was in the source with an AUC of "
        f"at least {found['auc']:.2f} (0.5 is chance, 1 is certainty; {measured})"
    )
