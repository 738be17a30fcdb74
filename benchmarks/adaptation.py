"""Seconds of `adapt` over seconds of extracting the same target, webcam→amazon, with an empty cache: training and
deciding alone, and the whole command.

python benchmarks/adaptation.py OFFICE31
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from usfda.experiments.protocols import OFFICE31_GAPS


def main(folder: str) -> None:
    protocol = OFFICE31_GAPS["open-partial"]
    source, target = ",".join(protocol.source), ",".join(protocol.target)
    with tempfile.TemporaryDirectory() as place:
        usfda = [sys.executable, "-m", "usfda", "--cache", place, "--quiet"]
        model, result = Path(place, "m.usfda"), Path(place, "a.json")
        webcam, amazon = (Path(folder, domain) for domain in ("webcam", "amazon"))
        subprocess.run([*usfda, "procure", webcam, "--for", "all", "--classes", source, "-o", model], check=True)
        for method in ("usfda", "mixture"):
            subprocess.run([*usfda, "cache", "clear"], check=True)
            call: list[str | Path] = ["adapt", model, amazon, "--classes", target, "--method", method]
            started = time.perf_counter()
            subprocess.run([*usfda, *call, "-o", Path(place, "a.usfda"), "--json", result], check=True)
            whole = time.perf_counter() - started
            card = json.loads(result.read_text())
            features, training = card["seconds"]["features"], card["seconds"]["training"]
            print(f"{method}: {card['samples']} images, features {features:.1f} s, training {training:.1f} s")
            print(
                f"  training over features {training / features:.2f}, whole command {whole / features:.2f}", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1])
