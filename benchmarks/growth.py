"""Time and memory of the commands as the data grow: vectors up to a million, photographs up to a hundred thousand.

    python benchmarks/growth.py vectors -o growth-vectors.csv [--classes 1000] [--most 1000000]
    python benchmarks/growth.py images FOLDER -o growth-images.csv [--backbone gradients] [--most 100000]
    python benchmarks/growth.py plot growth-*.csv -o scale.png

Every command runs in a process of its own. Seconds are those that it computes, user and system, of all threads: other
work on the machine disturbs them less than the clock. Memory is the most that it held. FOLDER has one folder per class
(benchmarks/vary_images.py makes one).
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from usfda import Samples
from usfda.data.reading import read

DIM = 1280  # of the default backbone
BATCH = 10_000
COLUMNS = ("series", "command", "n", "cpu_seconds", "clock_seconds", "peak_mib")


def write_vectors(file: Path, classes: range, n: int, shift: float, seed: int) -> None:
    """An .npz of n vectors of some classes, written batch by batch: the classes lie around fixed centres."""
    rng = np.random.default_rng(seed)
    y = rng.choice(np.asarray(classes), n)
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("X.npy", "w", force_zip64=True) as member:
            header = {"descr": "<f4", "fortran_order": False, "shape": (n, DIM)}
            np.lib.format.write_array_header_1_0(member, header)
            centres = {c: np.random.default_rng(c).standard_normal(DIM, np.float32) for c in classes}
            for i in range(0, n, BATCH):
                own = np.stack([centres[c] for c in y[i : i + BATCH].tolist()])
                X = rng.standard_normal(own.shape, np.float32) + own + np.float32(shift)
                member.write(np.maximum(X, 0).data)
        with archive.open("y.npy", "w") as member:
            np.lib.format.write_array(member, y)


class Measured:
    """Runs commands and writes a line for each."""

    def __init__(self, file: Path, series: str, place: Path):
        self.series, self.place = series, place
        new = not file.exists()
        self.file = file.open("a", newline="")
        self.writer = csv.writer(self.file)
        if new:
            self.writer.writerow(COLUMNS)

    def __call__(self, name: str, n: int, *args: object) -> None:
        call = [sys.executable, "-m", "usfda", "--cache", str(self.place / "store"), "--quiet", *map(str, args)]
        started = time.perf_counter()
        process = subprocess.Popen(call)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{name} of {n} failed")
        seconds = usage.ru_utime + usage.ru_stime, time.perf_counter() - started
        row = (self.series, name, n, *(round(s, 1) for s in seconds), round(usage.ru_maxrss / 1024))
        print(*row, flush=True)
        self.writer.writerow(row)
        self.file.flush()


def vectors(args: argparse.Namespace, place: Path) -> None:
    k = args.classes
    run = Measured(args.output, f"vectors, {k:,} classes", place)
    for n in (10_000, 100_000, 1_000_000):
        if n > args.most:
            break
        source, target, model, adapted = (place / name for name in ("s.npz", "t.npz", "m.usfda", "a.usfda"))
        write_vectors(source, range(k), n, 0, 1)
        run("procure --for mixture", n, "procure", source, "--for", "mixture", "-o", model)
        if args.networks:
            run("procure --for usfda", n, "procure", source, "--for", "usfda", "-o", place / "p.usfda")
        write_vectors(target, range(k // 2, k + k // 2), n, 0.3, 2)
        source.unlink()
        run("adapt", n, "adapt", model, target, "-o", adapted)
        run("predict", n, "predict", adapted, target, "-o", place / "out.parquet")


def images(args: argparse.Namespace, place: Path) -> None:
    run = Measured(args.output, f"photographs, {args.backbone}", place)
    found = read(args.folder, labelled=True)
    assert isinstance(found, Samples)
    order = np.random.default_rng(0).permutation(len(found))
    for n in (1_000, 10_000, 100_000):
        if n > args.most:
            break
        some, model, adapted = place / "list.csv", place / "m.usfda", place / "a.usfda"
        chosen = found[order[:n]]
        assert chosen.labels is not None
        with some.open("w", newline="") as file:
            csv.writer(file).writerows(zip(chosen.paths, chosen.labels.tolist(), strict=True))
        if args.cold:  # every command for itself
            run("cache clear", n, "cache", "clear")
        run("procure --for mixture", n, "procure", some, "--backbone", args.backbone, "--for", "mixture", "-o", model)
        for name, options in {"adapt": ("-o", adapted), "predict": ("-o", place / "out.jsonl")}.items():
            if args.cold:
                run("cache clear", n, "cache", "clear")
            run(name, n, name, adapted if name == "predict" else model, some, *options)


def plot(args: argparse.Namespace) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for file in args.files for row in csv.DictReader(file.open())]
    series = list(dict.fromkeys(row["series"] for row in rows))
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(row["command"] for row in rows))}
    figure, axes = plt.subplots(2, len(series), figsize=(4.2 * len(series), 7), sharey="row", squeeze=False)
    for column, name in enumerate(series):
        for command in dict.fromkeys(row["command"] for row in rows if row["series"] == name):
            if command == "cache clear":
                continue
            own = [row for row in rows if (row["series"], row["command"]) == (name, command)]
            n = [int(row["n"]) for row in own]
            axes[0, column].plot(n, [float(row["cpu_seconds"]) for row in own], "o-", c=colours[command], label=command)
            axes[1, column].plot(n, [float(row["peak_mib"]) / 1024 for row in own], "o-", c=colours[command])
        axes[0, column].set(title=name, xscale="log", yscale="log")
        axes[1, column].set(xscale="log", xlabel="samples", ylim=(0, None))
        axes[0, column].legend(fontsize=8)
        for axis in axes[:, column]:
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("seconds of computing")
    axes[1, 0].set_ylabel("peak memory, GiB")
    figure.tight_layout()
    figure.savefig(args.output, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    of_vectors = kinds.add_parser("vectors")
    of_vectors.add_argument("--classes", type=int, default=20)
    of_vectors.add_argument("--most", type=int, default=1_000_000)
    of_vectors.add_argument("--networks", action="store_true", help="procure for method usfda, too")
    of_images = kinds.add_parser("images")
    of_images.add_argument("folder", type=Path)
    of_images.add_argument("--backbone", default="gradients")
    of_images.add_argument("--most", type=int, default=100_000)
    of_images.add_argument("--cold", action="store_true", help="clear the cache before every command")
    of_plot = kinds.add_parser("plot")
    of_plot.add_argument("files", type=Path, nargs="+")
    for one in (of_vectors, of_images, of_plot):
        one.add_argument("-o", "--output", type=Path, required=True)
        one.add_argument("--place", type=Path, help="a folder with room for the files, else a temporary one")
    args = parser.parse_args()
    if args.kind == "plot":
        plot(args)
        return
    with tempfile.TemporaryDirectory(dir=args.place) as place:
        {"vectors": vectors, "images": images}[args.kind](args, Path(place))


if __name__ == "__main__":
    main()
