"""All harnesses, one after the other, and a table: ``python -m fuzz [NAME …] [--runs N] [--seed N]``."""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .harness import NAMES

# Of a thousand executions, how many each harness gets: those that are quick, and those with more to find, get more.
SHARES = {"model_file": 150, "graph": 200, "lists": 400, "images": 150, "uploads": 100}
FINDINGS = Path("fuzz-findings")


def run(name: str, runs: int, seed: int, corpus: Path) -> tuple[int, str, list[str]]:
    """Executions, edges and features that were reached, and the inputs that were found to do harm."""
    FINDINGS.mkdir(exist_ok=True)
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(FINDINGS.iterdir())
    options = [f"-runs={runs}", f"-seed={seed}", f"-artifact_prefix={FINDINGS}/{name}-"]
    command = [sys.executable, "-m", "fuzz.one", name, str(corpus), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None
    last, done, covered = "", 0, ""
    for line in process.stdout:
        if state := re.match(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)", line):
            done, covered = int(state[1]), f"{state[2]} / {state[3]}"
        elif count := re.match(r"stat::number_of_executed_units: (\d+)", line):
            done = int(count[1])
        last = last[-4000:] + line if not state else last
    code = process.wait()
    new = sorted(set(FINDINGS.iterdir()) - before)
    if code:
        print(last, file=sys.stderr)
    return done, covered, [str(file) for file in new] or ["the harness itself failed"] * (code != 0)


def main() -> int:
    """The exit code is 1 where anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--runs", type=int, default=1_000_000, help="executions in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="a folder that keeps the inputs that led to something new")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return report(options.names, options.runs, options.seed, options.corpus or Path(folder))


def report(names: list[str], runs: int, seed: int, corpus: Path) -> int:
    """Run them, and print the table."""
    total = 0
    bad: list[str] = []
    print("| harness | executions | edges / features | findings |\n|---|---|---|---|", flush=True)
    for name in names:
        share = SHARES[name] / sum(SHARES[name] for name in names)
        done, covered, found = run(name, math.ceil(runs * share), seed, corpus / name)
        total, bad = total + done, bad + found
        print(f"| {name} | {done:,} | {covered} | {', '.join(found) or 'none'} |", flush=True)
    print(f"| in all | {total:,} | | {len(bad)} |")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
