"""What a caller may want to catch."""

from __future__ import annotations


class InputError(ValueError):
    """The call or the input is wrong. The message names the fault, its place and the remedy."""


class UnreadableImage(ValueError):
    """A file is not an image that can be used: damaged, of another kind, or too large. The message gives the reason."""
