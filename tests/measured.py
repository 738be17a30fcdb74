"""The real memory of some work, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

PEAK = """
def peak():  # not ru_maxrss, which begins with what the parent has taken
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
"""


def run(setup: str, work: str) -> tuple[float, str]:
    """How many MiB the work takes beyond what it starts with, and what it prints."""
    lines = (f"{PEAK}\n{setup}\nbefore = peak()", work, "print(peak() - before)")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *printed, taken = done.stdout.splitlines()
    return float(taken), "\n".join(printed)
