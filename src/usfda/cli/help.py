"""Help texts without Python types: typer shows ``<Any>``, ``<bool>`` and ``{source}``."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup


class _Plain:
    """Arguments by their name alone, flags without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, with what is shown of them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperArgument):
                param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
            elif getattr(param, "is_flag", False):
                param.metavar = ""
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line, without braces."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece.replace("{", "").replace("}", "") for piece in pieces]


class PlainCommand(_Plain, TyperCommand):
    """A command."""


class PlainGroup(_Plain, TyperGroup):
    """A group of commands."""
