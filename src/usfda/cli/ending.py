"""How a command ends before its time: by a signal, or because the machine has no more to give."""

from __future__ import annotations

import errno

from ..memory import ran_out

INTERRUPTED = "interrupted; features and runs so far are kept, and the next call goes on from there"
# What a person can do about it, by the number of the system's error.
ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there, then call it again; what was there is unharmed"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit (ulimit -n), or use fewer --threads"),
    errno.EFBIG: "the file may not become so large: ask for a higher limit (ulimit -f)",
    errno.EROFS: "name another place",
    errno.ENOMEM: "close other programs, raise the limit (ulimit -v), or use fewer --threads",
}


def explain(error: Exception) -> str:
    """An error that nobody foresaw in a sentence, with what to do where that is known."""
    seen: BaseException | None = error
    while seen is not None:  # a library may have wrapped it
        if isinstance(seen, KeyboardInterrupt):
            return INTERRUPTED
        if ran_out(seen):
            text = f" ({seen})" if isinstance(seen, MemoryError) and str(seen) else ""
            return f"memory ran out{text}; {ADVICE[errno.ENOMEM]}"
        if isinstance(seen, OSError) and seen.errno in ADVICE:
            place = "" if seen.filename is None else f"{seen.filename}: "
            return f"{place}{seen.strerror}; {ADVICE[seen.errno]}"
        seen = seen.__cause__ or seen.__context__
    return f"{type(error).__name__}: {error}"
