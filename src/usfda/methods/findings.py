"""What an adaptation found and what a model answers, in values and in plain sentences.

The screen, the report and the service show them, and so they say the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Cluster:
    """A group of unknown samples that look alike.

    Parameters
    ----------
    number : int
        By which predictions and ``teach`` call it, from 1.
    samples : int
        How many samples of all pieces are in it; about, where the model was updated or taught.
    examples : tuple of str
        The most typical of them, by name, while the model that was just adapted is in memory: a file has no names.
    """

    number: int
    samples: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taught:
    """A class that the client taught.

    Parameters
    ----------
    name : str
        As it was named.
    images : int
        About so many images of the target it stands for.
    examples : int
        Labelled images that were given for it.
    clusters : int
        Clusters of the unknown that were given its name.
    """

    name: str
    images: int
    examples: int
    clusters: int


@dataclass(frozen=True)
class Findings:
    """What an adaptation found.

    Parameters
    ----------
    method : str
        ``mixture`` or ``usfda``.
    samples : int
        Samples of the target, those of earlier pieces not among them until the model is taught.
    earlier_samples : int
        Samples of earlier pieces, for a model that was updated and not taught since.
    strictness : float
        The score below which a sample is unknown.
    unknown_share : float
        Percent of ``samples`` that are called unknown.
    unknown_estimate : float or None
        Percent that are unknown, as estimated over all pieces; None where the method does not tell, as for all below.
    unknown_interval : (float, float) or None
        Where the true percentage lies in nine of ten targets.
    verdict : {"better", "same", "kept"} or None
        How the adapted decision is expected to compare with the class means. With "kept", the class means are used.
    expected : mapping of str to float or None
        The expected figure, in percent, of the adapted decision, of the class means, which are not adapted, and of the
        source network: H; accuracy where nothing is unknown; T_unk where nothing is known. Empty in older files.
    decision : {"learned", "simple"} or None
        Which rule separated known samples from unknown ones.
    absent : tuple of str
        Source classes that seem to be absent.
    clusters : tuple of Cluster
        Of the unknown, of all pieces, the largest first.
    alone : int
        Unknown samples that resemble no cluster.
    taught : tuple of Taught
        Classes that the client taught.
    joined : tuple of str
        Classes of the source that the client gave clusters or examples.
    repeated : int
        Samples of an update that were adapted to before, as far as they are recognised.
    relabelled : int or None
        Samples of an update that had another label before it; None where it was none.
    """

    method: str
    samples: int
    earlier_samples: int
    strictness: float
    unknown_share: float
    unknown_estimate: float | None
    unknown_interval: tuple[float, float] | None
    verdict: Literal["better", "same", "kept"] | None
    expected: Mapping[str, float | None]
    decision: Literal["learned", "simple"] | None
    absent: tuple[str, ...]
    clusters: tuple[Cluster, ...]
    outliers: int
    taught: tuple[Taught, ...]
    joined: tuple[str, ...]
    repeated: int = 0
    relabelled: int | None = None

    @classmethod
    def of(cls, card: Mapping[str, Any], examples: Mapping[int, Sequence[str]] | None = None) -> Findings:
        """From the deployment's part of a card."""
        found, examples = card.get("check") or {}, examples or {}
        clusters = [Cluster(int(c), n, tuple(examples.get(int(c), ()))) for c, n in found.get("clusters", {}).items()]
        interval = found.get("unknown_interval")
        return cls(
            card["method"],
            card["samples"],
            card.get("earlier_samples", 0),
            card["strictness"],
            card["unknown_share"],
            found.get("unknown_estimate"),
            None if interval is None else (interval[0], interval[1]),
            found.get("verdict"),
            found.get("expected", {}),
            found.get("decision"),
            tuple(found.get("absent", ())),
            tuple(sorted(clusters, key=lambda c: (-c.samples, c.number))),
            found.get("outliers", 0),
            tuple(
                Taught(name, of["images"], of["examples"], of["clusters"])
                for name, of in card.get("taught", {}).items()
            ),
            tuple(card.get("joined", ())),
            card.get("repeated", 0),
            card.get("relabelled"),
        )

    def sentences(self) -> list[str]:
        """In plain words, the most important first; the last is how far the result is to be trusted."""
        lines = []
        if self.repeated:
            of = f"at least {self.repeated} of these {count(self.samples, 'sample')}, perhaps all,"
            lines.append(f"{of} were adapted to before and count twice: an update is for new ones")
        if self.relabelled is not None:
            lines.append(
                f"{self.relabelled} of these {count(self.samples, 'sample')} had another label before the update; "
                "earlier ones may have another now: predict them again"
            )
            if not self.repeated:
                lines.append("an update is for new samples: earlier ones would count twice, and few are noticed")
        if self.unknown_estimate is not None and self.unknown_interval is not None:
            low, high = self.unknown_interval
            so_far = " (of all so far)" if self.earlier_samples else ""
            if high - low > WIDE:
                lines.append(f"how many are unknown cannot be estimated well here{so_far}")
            else:
                share = f"{self.unknown_estimate:.0f} % unknown, likely between {low:.0f} and {high:.0f} %"
                lines.append(f"about {share}{so_far}")
        if self.verdict is not None:
            lines.append(self._verdict(self.verdict))
        if self.decision == "simple":
            lines.append("these samples are unlike those the decision was trained on: a simple rule was used instead")
        if self.absent:
            lines.append(f"source classes that seem absent: {', '.join(self.absent)}")
        for taught in self.taught:
            lines.append(f"taught class {taught.name}: {_origin(taught)}, about {count(taught.images, 'image')}")
        if self.joined:
            lines.append(f"clusters or examples were added to {', '.join(self.joined)}")
        counted = not (self.earlier_samples or self.taught or self.joined)
        if self.clusters:
            sizes = ", ".join(f"{c.number} ({c.samples})" for c in self.clusters[:SHOWN])
            more = f" and {len(self.clusters) - SHOWN} smaller ones" if len(self.clusters) > SHOWN else ""
            none = (
                f"; {self.outliers} more {'resembles' if self.outliers == 1 else 'resemble'} none"
                if self.outliers
                else ""
            )
            of = count(len(self.clusters), "cluster")
            samples = "samples" if counted else "about so many samples"
            lines.append(f"the unknown form {of}, with {samples} in brackets: {sizes}{more}{none}")
        elif self.outliers:
            lines.append(f"{'' if counted else 'about '}{count(self.outliers, 'unknown sample')} in no cluster")
        return [*lines, self.trust()]

    def trust(self) -> str:
        """How far the result is to be trusted, as far as that can be told without labels."""
        if self.verdict is None:
            return "whether the adaptation helped was not measured: label some images and evaluate it"
        if self.expected.get("adapted") is None:
            return "check some images of every class, or label some and evaluate the model"
        best = self.expected["class_means" if self.verdict == "kept" else "adapted"]
        assert best is not None
        for least, said in RELIABILITY:
            if best >= least:
                return said
        return RELIABILITY[-1][1]

    def _verdict(self, verdict: str) -> str:
        adapted, means = self.expected.get("adapted"), self.expected.get("class_means")
        figures = "" if adapted is None or means is None else f" (expected {adapted:.0f} and {means:.0f} %)"
        # Of the decisions that may have been kept, that of the class means knows neither clusters nor taught classes.
        kept = "earlier decision" if self.earlier_samples or self.clusters or self.taught else "class means"
        return {
            "better": f"expected to be better than the class means without adaptation{figures}",
            "same": f"expected to be about as good as the class means without adaptation{figures}",
            "kept": f"expected to be worse than the class means without adaptation{figures}: the {kept} are used"
            if kept == "class means"
            else f"expected to be worse than the class means{figures}: the {kept} is used",
        }[verdict]


@dataclass(frozen=True)
class Answers:
    """What a model answers for samples, counted.

    Parameters
    ----------
    unknown : int
        Samples that are called unknown.
    classes : mapping of str to int
        How many are labelled with each class of the model.
    word : str
        What a sample is called.
    """

    unknown: int
    classes: Mapping[str, int]
    word: str = "image"

    @property
    def samples(self) -> int:
        """All of them."""
        return self.unknown + sum(self.classes.values())

    def sentences(self) -> list[str]:
        """In plain words, the most important first."""
        labelled, share = self.samples - self.unknown, 100 * self.unknown / self.samples
        lines = [
            f"of {count(self.samples, self.word)} the model labels {labelled} and calls {self.unknown} unknown "
            f"({share:.1f} %)"
        ]
        found = sorted((name for name, n in self.classes.items() if n), key=lambda name: -self.classes[name])
        if found:
            lines.append(f"labelled as {named_counts({name: self.classes[name] for name in found})}")
        if absent := [name for name, n in self.classes.items() if not n]:
            lines.append(f"classes without any {self.word}: {', '.join(absent[:SHOWN])}{_more(absent)}")
        return lines


@dataclass(frozen=True)
class Step:
    """What to do next: a word for it, the command, and what it is good for."""

    name: str
    command: str
    why: str


def beside(model: str, word: str) -> str:
    """The name of a file that is made of a model, other than its own: the earlier one is the only way back."""
    return f"{model.removesuffix('.usfda')}-{word}.usfda"


def command(*words: str) -> str:
    """A line for a shell: all commands that are suggested are made here, because files and cards have names in them."""
    return shlex.join(["usfda", *words])


def next_steps(findings: Findings | None, model: str, *target: str, backbone: str | None = None) -> list[Step]:
    """The commands that come next, for a model file and its target; None for a model that was not adapted.

    ``backbone`` is what must be named where the file does not have it.
    """
    taught = beside(model, "taught")
    used = [model] if backbone is None else [model, "--backbone", backbone]
    if findings is None:
        line = command("adapt", *used, *target, "-o", "client.usfda")
        return [Step("adapt", line, "fit the model to these images; no label")]
    look = command("report", *used, *target, "-o", "report.html")
    steps = [Step("look", look, "see the images, their labels and clusters")]
    if findings.clusters:
        # All together: each call numbers the clusters anew.
        named = [word for c in findings.clusters[:SHOWN] for word in ("--name", f"{c.number}=NAME")]
        why = "clusters that you name become classes; a list of path,label in their place mends wrong labels"
        steps.append(Step("teach", command("teach", model, *named, "-o", taught), why))
    elif findings.verdict in ("better", "same"):
        why = "a folder with one folder for each new class, a few images in each"
        steps.append(Step("teach", command("teach", *used, "EXAMPLES", "-o", taught), why))
    if findings.verdict != "better":
        check = command("evaluate", *used, "LABELLED")
        steps.append(Step("check", check, "measure it on some images that you label"))
    return [*steps, Step("use it", command("predict", *used, "PATH..."), "labels for further images")]


WIDE = 50  # points: an interval that is wider is not shown
RELIABILITY = (  # from which expected figure on
    (85.0, "reliability: high; look at some images of every class before you rely on it"),
    (65.0, "reliability: medium; check some images of every class, or label some and evaluate the model"),
    (0.0, "reliability: low; label some images and evaluate the model before you use it"),
)
SHOWN = 8  # clusters or classes that are listed in a sentence
OF_TARGET = "the file tells about the images that it was adapted to: hand it on as you would these images"
NOT_ADAPTED = "not yet: the model was not adapted, and nothing is known of how it does on images like these"


def measured(shared_accuracy: float | None, t_unk: float | None) -> str:
    """How far a result is to be trusted where there are labels; in percent, None where there is nothing of the kind."""
    parts = []
    if shared_accuracy is not None:
        parts.append(f"{shared_accuracy:.0f} % of what the model knows is labelled rightly, on average over classes")
    if t_unk is not None:
        parts.append(f"{t_unk:.0f} % of what is new to it is called unknown")
    return f"by the labels, {' and '.join(parts)}"


def privacy_sentence(told: Mapping[str, Any]) -> str:
    """What the card says about privacy, in words."""
    if "noise" in told:
        text = "differentially private, ε = {epsilon:g} with δ = {delta:g}".format(**told["noise"])
        if (bound := f"{told['noise']['auc_bound']:.2f}") == "1.00":  # which is above that of any attack
            return f"{text}: at this ε theory gives no useful bound on how well an attack tells members of the source"
        return f"{text}: no attack tells members of the source with an AUC above {bound}"
    text = "private, {least_images} images or more of every class" if told["private"] else "not private"
    if "membership" in told:
        text += "; who has the file and an image can tell whether it was among the source with an AUC of at least "
        text += "{auc:.2f} (0.5 is chance, 1 is certainty; by the {attack}, on {members} images of the source and "
        text += "{others} others)"
    found = dict(told.get("membership", {}))
    if "attack" in found:
        found["attack"] = found["attack"].partition(",")[0]  # what it looks at, without its parameters
    return text.format(**{**told, **found})


def named_counts(counts: Mapping[str, int]) -> str:
    """``mug (12), pen (3)``; of many, the first and how many more."""
    named = ", ".join(f"{name} ({n})" for name, n in list(counts.items())[:SHOWN])
    return f"{named}{_more(list(counts))}"


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""


def count(n: int, word: str) -> str:
    """``1 image``, ``2 images``."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}{'es' if word.endswith('s') else 's'}"
    return f"{n} {word if n == 1 else plural}"


def _origin(taught: Taught) -> str:
    parts = [count(n, word) for n, word in ((taught.clusters, "named cluster"), (taught.examples, "example")) if n]
    return "from " + " and ".join(parts)
