"""The client's side: adapt the vendor's file to images without labels, look at what was found, label them.

python examples/vendor.py        # or take the file that your vendor sent you
python examples/client.py
"""

from collections import Counter
from pathlib import Path

import usfda

FOLDER = Path("examples-out")

if __name__ == "__main__":
    vendor = usfda.load(FOLDER / "vendor.usfda")
    images = FOLDER / "uci"  # any folder will do; names of folders inside it are not looked at
    adapted = usfda.adapt(vendor, images)
    adapted.save(FOLDER / "client.usfda")

    # Nobody has labels here, so these are estimates, and they say how sure they are.
    assert adapted.findings is not None
    for sentence in usfda.describe(adapted.findings):
        print(sentence)

    # A label for every image; "unknown" for what the vendor had no class for.
    print(dict(sorted(Counter(adapted.predict(images).tolist()).items())))
    for prediction in adapted.predictions(sorted(images.rglob("*.png"))[::200]):
        print(prediction.path, prediction.label, f"{prediction.score:.2f}", prediction.cluster or "")

    # A page to look through: a map and a gallery of all images, the clusters of unknown ones to be named.
    usfda.write_report(adapted, images, FOLDER / "report.html")
    print(f"open {FOLDER / 'report.html'} in a browser")
