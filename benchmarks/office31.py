"""The six tasks of Office-31 through the commands, as a table in Markdown; runs that are finished are not repeated.

python benchmarks/office31.py OFFICE31 -o runs/ [--gap open-partial] [--seeds 3] [--method usfda] [--backbone NAME]
        [--negatives composite]

For method usfda it also says how the check without labels compares with the truth.
"""

import argparse
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from usfda import load
from usfda.experiments.tables import figure
from usfda.protocols import BENCHMARKS, OFFICE31_GAPS, office31

COLUMNS = ("t_avg", "t_unk", "h_score", "shared_accuracy", "closed_accuracy", "auroc", "ece")


def run_all(options: argparse.Namespace) -> dict[str, list[dict]]:
    source, target = (",".join(names) for names in office31(options.gap))
    out = Path(options.output, options.backbone.rsplit("/", 1)[-1].replace(":", "-"), options.gap, options.negatives)
    out.mkdir(parents=True, exist_ok=True)
    usfda = [sys.executable, "-m", "usfda", "--quiet"]
    results: dict[str, list[dict]] = {}
    for (s, t), seed in itertools.product(
        itertools.permutations(BENCHMARKS["office31"].domains.values(), 2), range(options.seeds)
    ):
        vendor, client = out / f"{s}-{seed}.usfda", out / f"{s}-{t}-{options.method}-{seed}.usfda"
        places = {domain: str(Path(options.folder, domain)) for domain in (s, t)}
        commands = {
            vendor: [
                *["procure", places[s], "--classes", source, "--backbone", options.backbone],
                *["--negatives", options.negatives, "-o", vendor],
            ],
            client: ["adapt", vendor, places[t], "--classes", target, "--method", options.method, "-o", client],
        }
        for file, command in commands.items():
            if not file.exists():
                subprocess.run([*usfda, *map(str, command), "--seed", str(seed)], check=True)
        for kind, model in {"source model": vendor, options.method: client}.items():
            file = out / f"{s}-{t}-{kind.replace(' ', '-')}-{seed}.json"
            if not file.exists():
                command = ["evaluate", model, places[t], "--classes", target, "--json", file]
                subprocess.run([*usfda, *map(str, command)], check=True, stdout=subprocess.DEVNULL)
            result = json.loads(file.read_text())
            if kind == "usfda":
                result["check"] = load(client).card["deployment"]["check"]
            results.setdefault(f"{kind}|{s[0].upper()}→{t[0].upper()}", []).append(result)
    return results


def judged_by(gap: str) -> str:
    """The metric that the gap is judged by."""
    return {"partial": "shared_accuracy", "closed": "shared_accuracy", "nothing-shared": "t_unk"}.get(gap, "h_score")


def compare_checks(results: dict[str, list[dict]], gap: str) -> None:
    """What the check said without a label, beside the truth."""
    said: dict[str, list[float]] = {}
    inside: list[bool] = []
    hits = called = there = 0
    names = set(office31(gap)[0])
    for key, runs in results.items():
        kind, task = key.split("|")
        for i, run in enumerate(runs if kind == "usfda" else []):
            found = run["check"]
            gain = run[judged_by(gap)] - results[f"source model|{task}"][i][judged_by(gap)]
            said.setdefault(found["verdict"], []).append(gain)
            unknown = sum(v["samples"] for name, v in run["per_class"].items() if name not in names)
            low, high = found["unknown_interval"]
            inside.append(low <= 100 * unknown / run["samples"] <= high)
            absent = names - set(run["per_class"])
            hits += len(absent & set(found["absent"]))
            called += len(found["absent"])
            there += len(absent)
    for verdict, gains in said.items():
        better = sum(gain > 0 for gain in gains)
        print(f"verdict {verdict}: {len(gains)} runs, better in {better}, mean gain {np.mean(gains):.1f}")
    print(f"share of unknowns inside the interval: {sum(inside)} of {len(inside)}")
    print(f"absent classes: {hits} of {called} named are absent, of {there} that are")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--gap", choices=OFFICE31_GAPS, default="open-partial")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--method", default="usfda")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--negatives", default="composite")
    options = parser.parse_args()
    results = run_all(options)
    print(f"| | task | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    for kind in ("source model", options.method):
        rows = {name.split("|")[1]: runs for name, runs in results.items() if name.startswith(f"{kind}|")}
        for task, runs in rows.items():
            print(f"| {kind} | {task} | {' | '.join(str(figure([run[c] for run in runs])) for c in COLUMNS)} |")
        # The mean over tasks of each seed, then mean and deviation over seeds.
        seeds = [
            {
                c: None if any(r[i][c] is None for r in rows.values()) else np.mean([r[i][c] for r in rows.values()])
                for c in COLUMNS
            }
            for i in range(options.seeds)
        ]
        print(f"| {kind} | **mean** | {' | '.join(str(figure([seed[c] for seed in seeds])) for c in COLUMNS)} |")
    if options.method == "usfda":
        compare_checks(results, options.gap)


if __name__ == "__main__":
    main()
