"""The program ``usfda``: the commands, which Ctrl-C and SIGTERM end with one line, at whatever moment they come."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType

SIGNS = (signal.SIGINT, signal.SIGTERM)
GRACE = 5.0  # seconds after which a command ends whatever it waits for, as for threads that compute


def main() -> int:
    """Run the command; after a signal the exit code is 128 and its number, unless the work was done by then."""
    received: list[int] = []
    over = False

    def stop(sign: int, frame: FrameType | None) -> None:
        received.append(sign)
        if not over:
            signal.setitimer(signal.ITIMER_REAL, GRACE)
            raise KeyboardInterrupt

    def give_up(sign: int, frame: FrameType | None) -> None:
        """Python swallows an exception in a callback or a finaliser, and joins its threads when it ends."""
        if not over:
            os.write(2, b"error: interrupted\n")
        os._exit(128 + received[0])

    signal.signal(signal.SIGALRM, give_up)
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # all threads have ended, and soon the handlers are gone
    for sign in SIGNS:
        signal.signal(sign, stop)
    try:
        try:
            from .cli.main import main as run  # which takes a while

            code = run()
        finally:
            over = True
    except (KeyboardInterrupt, Exception) as error:  # while it was loaded
        print(f"error: {'interrupted' if received else f'{type(error).__name__}: {error}'}", file=sys.stderr)
        code = 1
    finally:
        for sign in SIGNS:
            signal.signal(sign, signal.SIG_IGN)  # Python is about to end
        # An interrupt within an `exec`, as libraries call it, is remembered until the next one, even if it was caught:
        # `python -m usfda` would then end as if the signal had killed it.
        exec("")
    return 128 + received[0] if received and code else code


if __name__ == "__main__":
    sys.exit(main())
