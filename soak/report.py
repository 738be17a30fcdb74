"""What the campaign saw, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """A fault, what it met, and whether nothing was damaged; the message that was shown, or what was wrong."""

    fault: str
    command: str
    sound: bool
    message: str = ""
    times: int = 1


def table(outcomes: Iterable[Outcome]) -> str:
    """Markdown: one line per fault and command."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.fault, outcome.command), []).append(outcome)
    lines = ["| fault | command | times | sound | message |", "|---|---|---:|---:|---|"]
    for (fault, command), found in groups.items():
        times, sound = sum(one.times for one in found), sum(one.times for one in found if one.sound)
        texts = dict.fromkeys(one.message for one in sorted(found, key=lambda one: one.sound) if one.message)
        said = "; ".join(f"`{' '.join(text.split())[:300].replace('|', '/')}`" for text in list(texts)[:2])
        lines.append(f"| {fault} | {command} | {times} | {sound} | {said} |")
    return "\n".join(lines) + "\n"
