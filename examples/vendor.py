"""The vendor's side: learn from labelled images, look at what the file will tell, save it.

python examples/digits.py        # once, for the images
python examples/vendor.py
"""

from pathlib import Path

import usfda

FOLDER = Path("examples-out")

if __name__ == "__main__":
    # One folder per class: examples-out/mnist/0/0001.png … Put your own folder here.
    # "gradients" suits digits and drawings; leave the backbone out for photographs.
    # method="mixture" leaves out what only the paper's own method needs, so that this takes seconds.
    model = usfda.procure(FOLDER / "mnist", backbone="gradients", method="mixture")

    # Before a file leaves the house: how good is it, and what does it tell about the images?
    checked = model.card["procurement"]["validation"]
    print(f"classes: {' '.join(model.classes_)}")
    print(f"held-out images: {checked['samples']}, of which {checked['accuracy']} % are labelled rightly")

    # The file holds statistics of several images each and the backbone; no image, no path, no file name.
    model.save(FOLDER / "vendor.usfda")
    print(f"{FOLDER / 'vendor.usfda'}: {(FOLDER / 'vendor.usfda').stat().st_size / 1e6:.1f} MB")
