"""Whether memory can be had, asked beforehand: three libraries below this program never end where there is none.

SciPy's OpenBLAS asks for its buffers again and again (github.com/OpenMathLib/OpenBLAS/issues/5289); Python waits for a
new thread that found no memory to begin with (github.com/python/cpython/issues/140746); and Python before 3.14 tries
again and again to leave a block after an error if that takes a few bytes (github.com/python/cpython/issues/132508).
"""

from __future__ import annotations

import mmap
import os

MIB = 2**20
LIBRARIES = 512 * MIB  # of address space that they take, measured: commands succeed from 700 MiB on with two cores
PER_CORE = 96 * MIB  # for every core a thread and a buffer, 41 MiB, in each of the two OpenBLAS of NumPy and SciPy
THREAD = 16 * MIB  # its stack and its first objects, or what its next piece of work takes
BUFFER = 40 * MIB  # that OpenBLAS takes for every thread that calls it
# As libraries say that there is none.
WORDS = (
    "bad_alloc", "bad allocation", "can't allocate memory", "Failed to allocate", "can't start new thread",
    "failed to map segment",
)  # fmt: skip


def check_room(size: int) -> None:
    """Raise a MemoryError unless so many bytes could be taken now, within limits such as those of ``ulimit -v``."""
    try:
        mmap.mmap(-1, size).close()
    except OSError:
        raise MemoryError(f"{size // MIB} MiB are needed and cannot be had") from None


def room_to_load(cores: int) -> int:
    """What the libraries of a command take when they are loaded."""
    chosen = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return LIBRARIES + PER_CORE * (int(chosen) if chosen.isdecimal() else min(cores, 64))


def ran_out(error: BaseException) -> bool:
    """Whether an error means that there was no memory."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in WORDS)
