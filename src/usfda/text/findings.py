"""What an adaptation found, in sentences."""

from __future__ import annotations

from ..methods.decision import STRICTNESS
from ..methods.findings import Findings, Reliability, Taught
from .words import SHOWN, count, listed, share

# What each level means to somebody who is about to use the labels.
RELIABILITY = {
    Reliability.HIGH: "reliability: high; check a few images of every class",
    Reliability.MEDIUM: "reliability: medium; a part of the labels will be wrong, check some images of every class",
    Reliability.LOW: "reliability: low; many labels will be wrong, review some images before you use them",
}
NOT_MEASURED = "reliability: not measured; review some images before you use the labels"
NOT_ADAPTED = "reliability: not measured; the model was not adapted to images like these"
CLUSTERS = 3  # of which examples are listed; the report shows all
EXAMPLES = 3  # of each
OF_TARGET = "the file leaks information about the images that it was adapted to: protect it as you protect them"
REPEATED = "some of these images were adapted to before: leave them out, and update the earlier model again"
BADLY = "the share of unknown samples cannot be estimated well here"


def adapted_to(findings: Findings) -> str:
    """The size of the target, and the share that is called unknown."""
    samples, of = count(findings.samples, "sample"), ""
    if findings.earlier_samples:
        samples, of = f"{samples} and {findings.earlier_samples} earlier ones", "of the new ones "
    # The images are gone when a model is taught, so the share is an estimate from then on.
    about = "about " if (findings.taught or findings.joined) and not of else ""
    most = "" if findings.reject_at_most is None else f" (at most {findings.reject_at_most:g} %, as you set)"
    return f"{samples}, {about}{share(findings.unknown_share)} {of}called unknown{most}"


def result(file: str, findings: Findings) -> str:
    """The result of an adaptation, in one line."""
    estimate = _estimate(findings)
    clusters = f", in {count(len(findings.clusters), 'cluster')}" if findings.clusters else ""
    return f"{file}: adapted to {adapted_to(findings)}{clusters}" + (f"; {estimate}" if estimate else "")


def reliability(findings: Findings) -> str:
    """How reliable the labels are expected to be, in one line."""
    if (level := findings.reliability) is None:
        return NOT_MEASURED
    of_default = "" if findings.strictness == STRICTNESS else f" (estimated for the default threshold, {STRICTNESS:g})"
    return RELIABILITY[level] + of_default


def describe(findings: Findings) -> list[str]:
    """Everything that was found, the most important first; the last is the reliability."""
    return [*details(findings), reliability(findings)]


def details(findings: Findings) -> list[str]:
    """The same without the reliability."""
    lines = _update(findings)
    if estimate := _estimate(findings):
        lines.append(estimate)
    lines += _threshold(findings)
    if findings.verdict is not None:
        lines.append(_verdict(findings, findings.verdict))
    if findings.decision == "simple":
        lines.append("these samples differ from the data that the decision was trained on: a simpler rule is used")
    if findings.absent:
        lines.append(f"source classes that seem to be absent: {listed(findings.absent)}")
    lines += [
        f"taught class {taught.name}: {_origin(taught)}, about {count(taught.images, 'image')}"
        for taught in findings.taught
    ]
    if findings.joined:
        lines.append(f"clusters or examples were added to {', '.join(findings.joined)}")
    return lines + _clusters(findings)


def examples(findings: Findings) -> list[str]:
    """Typical samples of the largest clusters."""
    largest = findings.clusters[:CLUSTERS]
    return [f"cluster {c.number}, for example: {', '.join(c.examples[:EXAMPLES])}" for c in largest if c.examples]


def own_file(model: str, key: str, output: str) -> str:
    """That an adapted file has no signature."""
    return f"{model} is signed with {key}; {output} is your own file, without a signature"


def _update(findings: Findings) -> list[str]:
    lines, samples = [], count(findings.samples, "sample")
    if findings.repeated:
        lines.append(f"at least {findings.repeated} of these {samples} were adapted to before and now count twice")
    if findings.relabelled is not None:
        lines.append(f"{findings.relabelled} of these {samples} had another label before the update")
        lines.append("labels of earlier samples may have changed too: predict them again")
    return lines


def _estimate(findings: Findings) -> str | None:
    if findings.unknown_estimate is None or findings.unknown_interval is None:
        return None
    of_all = ", of all samples so far" if findings.earlier_samples else ""
    if findings.likely_interval is None:
        return BADLY
    low, high = findings.likely_interval
    likely = f"{findings.unknown_estimate:.0f} % (likely {low:.0f} to {high:.0f} %)"
    return f"estimated share of unknown samples{of_all}: {likely}"


def _threshold(findings: Findings) -> list[str]:
    """What the user has set, and what follows from it."""
    most, estimate, threshold = findings.reject_at_most, findings.unknown_estimate, f"{findings.strictness:.2g}"
    if most is None:
        own = findings.strictness == STRICTNESS
        return [] if own else [f"the rejection threshold is {threshold}, as you set; the default is {STRICTNESS:g}"]
    lines = [f"the rejection threshold is {threshold}, so that at most {most:g} % are called unknown, as you set"]
    if estimate is not None and estimate > most and findings.likely_interval is not None:
        lines.append(f"more are estimated to be unknown ({estimate:.0f} %): the others are labelled with a class")
    return lines


def _verdict(findings: Findings, verdict: str) -> str:
    adapted, means = findings.expected.get("adapted"), findings.expected.get("class_means")
    figures = "" if adapted is None or means is None else f" (H {adapted:.0f} against {means:.0f} %)"
    # Of the decisions that may have been kept, that of the class means knows neither clusters nor taught classes.
    kept = (
        "earlier decision is" if findings.earlier_samples or findings.clusters or findings.taught else "class means are"
    )
    return {
        "better": f"the adapted decision is used: expected to be better than the class means{figures}",
        "same": f"the adapted decision is used: expected to be about as good as the class means{figures}",
        "kept": f"the {kept} used: the adapted decision is expected to be worse than the class means{figures}",
    }[verdict]


def _clusters(findings: Findings) -> list[str]:
    counted = not (findings.earlier_samples or findings.taught or findings.joined)
    about = "" if counted else "about "
    outliers = f"{about}{count(findings.outliers, 'outlier')} in no cluster" if findings.outliers else ""
    if not findings.clusters:
        return [f"unknown samples: {outliers}"] if outliers else []
    sizes = [f"{c.number} ({about}{c.samples})" for c in findings.clusters]
    more = f" and {len(sizes) - SHOWN} smaller ones" if len(sizes) > SHOWN else ""
    of = f"unknown samples form {count(len(sizes), 'cluster')} (samples): {', '.join(sizes[:SHOWN])}{more}"
    return [f"{of}; {outliers}" if outliers else of]


def _origin(taught: Taught) -> str:
    parts = [count(n, word) for n, word in ((taught.clusters, "named cluster"), (taught.examples, "example")) if n]
    return "from " + " and ".join(parts)
