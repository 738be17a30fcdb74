"""Seconds of `adapt`'s training over seconds of extracting the same target, webcam→amazon, with an empty store.

python benchmarks/adaptation.py OFFICE31
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from usfda.protocols import office31


def main(folder: str) -> None:
    source, target = (",".join(names) for names in office31("open-partial"))
    with tempfile.TemporaryDirectory() as place:
        usfda = [sys.executable, "-m", "usfda", "--cache", place, "--quiet"]
        model, result = Path(place, "m.usfda"), Path(place, "a.json")
        webcam, amazon = (Path(folder, domain) for domain in ("webcam", "amazon"))
        subprocess.run([*usfda, "procure", webcam, "--classes", source, "-o", model], check=True)
        subprocess.run([*usfda, "adapt", model, amazon, "--classes", target, "-o", model, "--json", result], check=True)
        card = json.loads(result.read_text())
    seconds = card["seconds"]
    print(f"{card['samples']} images: features {seconds['features']:.1f} s, training {seconds['training']:.1f} s")
    print(f"ratio {seconds['training'] / seconds['features']:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
