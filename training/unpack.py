"""Unpack the images below one folder of a git directory without a work tree; objects that are absent are left out.

python -m training.unpack GIT_DIR FOLDER OUTPUT
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

IMAGES = {".jpg", ".jpeg", ".png", ".ppm", ".txt", ".h5", ".npy"}
SMALLEST = 200  # bytes; a pointer of Git LFS has about 130


def unpack(git_dir: Path, folder: str, out: Path) -> int:
    """Write the files below ``folder`` and return how many there were."""
    git = ["git", f"--git-dir={git_dir}"]
    listing = subprocess.run([*git, "ls-tree", "-r", "-z", "HEAD"], check=True, capture_output=True).stdout
    entries = [entry.split(b"\t", 1) for entry in listing.split(b"\0") if entry]
    wanted = [(meta.split()[2], name.decode(errors="replace")) for meta, name in entries]
    wanted = [(blob, name) for blob, name in wanted if name.startswith(folder) and Path(name).suffix.lower() in IMAGES]
    batch = subprocess.Popen([*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert batch.stdin is not None
    assert batch.stdout is not None
    written = 0
    for blob, name in wanted:
        batch.stdin.write(blob + b"\n")
        batch.stdin.flush()
        head = batch.stdout.readline().split()
        if head[-1] == b"missing":
            continue
        content = batch.stdout.read(int(head[2]))
        batch.stdout.read(1)
        if len(content) >= SMALLEST:
            file = out / Path(name).relative_to(folder)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            written += 1
    batch.stdin.close()
    batch.wait()
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("git_dir", type=Path)
    parser.add_argument("folder")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    print(unpack(options.git_dir, options.folder, options.output), "files")


if __name__ == "__main__":
    main()
