"""What an adaptation found, in sentences."""

from __future__ import annotations

from typing import Any


def describe(card: dict[str, Any]) -> list[str]:
    """The findings of a deployment's card in sentences, the most important first."""
    found = card.get("check")
    if found is None:
        return []
    low, high = found["unknown_interval"]
    both = found["consistency"]
    share = f"{found['unknown_estimate']:.0f} % unknown, likely between {low:.0f} and {high:.0f} %"
    share += " (of all so far)" if "earlier_samples" in card else ""
    lines = [f"about {share}" if not found["weak"] else f"perhaps {share}: the evidence is weak"]
    figures = {name: "one label for all" if k is None else f"{k:.2f}" for name, k in both.items()}
    why = f"agreement of neighbours on their label: {figures['adapted']}, source model {figures['source']}"
    kept = "earlier" if "earlier_samples" in card else "source model's"
    lines.append(
        {
            "better": f"looks better than the source model ({why})",
            "unclear": f"better or worse than the source model cannot be told ({why})",
            "worse": f"looks worse than the source model, so the {kept} decision was kept ({why})",
        }[found["verdict"]]
    )
    if found["absent"]:
        lines.append(f"source classes that seem absent: {', '.join(found['absent'])}")
    if found.get("clusters"):
        sizes = ", ".join(f"{name} ({n})" for name, n in found["clusters"].items())
        lines.append(f"the unknown form {len(found['clusters'])} clusters, with samples: {sizes}")
    return lines
