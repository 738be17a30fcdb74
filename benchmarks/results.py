"""Every table and figure of README.md and docs/ that is measured by runs, one after the other.

    python benchmarks/results.py DATA -o RUNS [--resnet onnx:FILE] [--only NAME,NAME] [--list]

DATA has Office-31, Caltech-10, the copies of ImageNet and Caltech, and a folder ``families`` (family_folders.py). A
step whose data is missing is named at the end. Each step says what it costs, keeps its runs in RUNS and writes its
table and figure to benchmarks/results. What is finished is not repeated: after an interruption, call it again.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).with_name("results")
# Experiments of `usfda reproduce`, and about how long they take.
REPRODUCED = {
    "fig-ssm": "5 min", "one-shot": "10 min", "complexity": "15 min", "fig-beta": "20 min", "fig-alpha": "30 min",
    "fig-batch-ratio": "30 min", "fig-negatives": "40 min", "fig-gap": "1 h", "table2": "4 h",
}  # fmt: skip
GAPS = ("open-partial", "open-set", "partial", "closed")


@dataclass(frozen=True)
class Step:
    """One call of the program; ``cost`` is an estimate for two free cores, with the features to be computed."""

    name: str
    cost: str
    arguments: tuple[str, ...]
    made: str  # the name of its files, without suffix


def steps(data: str, resnet: str | None) -> Iterator[Step]:
    """All of them, the short ones first."""
    for suffix, backbone in (("", "efficientnet_lite0"), ("-resnet50", resnet)):
        for name, cost in REPRODUCED.items() if backbone else ():
            arguments: tuple[str, ...] = (
                "reproduce",
                name,
                "--data",
                data,
                "--seeds",
                "5",
                "--backbone",
                str(backbone),
            )
            yield Step(name + suffix, cost, arguments, name)
        if not suffix:
            arguments = ("compare", "--protocol", "families", "--data", data, "--seeds", "3")
            yield Step("compare-families", "1 h for each seed", arguments, "families")
            for gap in GAPS:
                arguments = ("compare", "--protocol", f"office31-{gap}", "--data", data, "--seeds", "3")
                yield Step(f"compare-{gap}", "1.5 h", arguments, "results")


def run(step: Step, out: Path) -> bool:
    """Do a step and copy its files; whether it went through."""
    print(f"{step.name}: about {step.cost}, less what is finished", flush=True)
    began = time.monotonic()
    place = out / step.name
    if subprocess.run([sys.executable, "-m", "usfda", *step.arguments, "-o", place], check=False).returncode:
        return False
    RESULTS.mkdir(exist_ok=True)
    for kind in ("csv", "png"):
        if (file := place / f"{step.made}.{kind}").exists():
            shutil.copy(file, RESULTS / f"{step.name}.{kind}")
    print(f"{step.name}: {(time.monotonic() - began) / 60:.0f} min", flush=True)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("-o", "--output", type=Path, default=Path("results-out"))
    parser.add_argument("--resnet", help="ResNet-50, such as onnx:resnet50.onnx")
    parser.add_argument("--only", help="steps by name, with commas")
    parser.add_argument("--list", action="store_true", help="print the steps and what they cost")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else None
    chosen = [step for step in steps(options.data, options.resnet) if wanted is None or step.name in wanted]
    if options.list:
        for step in chosen:
            print(f"{step.name}: about {step.cost}: usfda {' '.join(step.arguments)}")
        return
    failed = [step.name for step in chosen if not run(step, options.output)]
    if failed:
        raise SystemExit(f"not done: {', '.join(failed)}; the messages above say why, and the same call goes on")


if __name__ == "__main__":
    main()
