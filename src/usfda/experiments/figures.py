"""The figures of the experiments; matplotlib comes with an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import InputError
from .tables import Statistic

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture
except ImportError:
    raise InputError("figures need matplotlib; pip install 'usfda[reproduce]'") from None

__all__ = ["Picture", "curves", "heat_maps", "histograms", "points", "rc_context"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")  # distinguishable with colour blindness


def curves(
    ticks: Sequence[str], lines: Mapping[str, Sequence[Statistic]], axis: str, marked: str, apart: int | None = None
) -> Picture:
    """A line with its deviation for each metric.

    ``marked`` is the tick of the default; from ``apart`` on the points are not joined.
    """
    picture = Picture(figsize=(6.4, 3.6), layout="constrained")
    axes: Axes = picture.subplots()
    place = np.arange(len(ticks))
    axes.axvline(ticks.index(marked), color="#999999", linestyle=":", label="default")
    for (name, values), colour in zip(lines.items(), COLOURS, strict=False):
        mean, deviation = _arrays(values)
        joined = slice(apart)
        axes.plot(place[joined], mean[joined], "o-", color=colour, label=name, markersize=4)
        low, high = mean - deviation, mean + deviation
        axes.fill_between(place[joined], low[joined], high[joined], color=colour, alpha=0.15, linewidth=0)
        if apart is not None:
            axes.errorbar(place[apart:], mean[apart:], deviation[apart:], fmt="D", color=colour, markersize=4)
    axes.set_xticks(place, [tick.replace(", ", ",\n") for tick in ticks])
    axes.set_xlabel(axis)
    axes.set_ylabel("percent")
    axes.set_ylim(0, 100)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)
    return picture


def _arrays(values: Sequence[Statistic]) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations; NaN, which is not drawn, where there is none."""
    mean = np.asarray([np.nan if v.mean is None else v.mean for v in values])
    return mean, np.asarray([v.deviation or 0.0 for v in values])


def points(
    names: Sequence[str], panels: Mapping[str, Mapping[str, Sequence[Statistic]]], axis: str = "percent"
) -> Picture:
    """A panel for each metric: a line for each name, a point with its deviation for each series."""
    picture = Picture(figsize=(max(7.0, 4.4 * len(panels)), 0.34 * len(names) + 1.4), layout="constrained")
    place = np.arange(len(names))
    grid = picture.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, series) in zip(grid, panels.items(), strict=True):
        for (name, values), colour, mark in zip(series.items(), COLOURS, "os^Dv", strict=False):
            mean, deviation = _arrays(values)
            axes.errorbar(mean, place, xerr=deviation, fmt=mark, color=colour, label=name, markersize=5)
        axes.set_title(title, fontsize=10)
        axes.set_xlim(0, 100 if axis == "percent" else None)
        axes.set_xlabel(axis)
        axes.grid(alpha=0.3)
        axes.set_yticks(place, names)
    grid[0].invert_yaxis()
    picture.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    return picture


def overview(own: np.ndarray, estimated: np.ndarray, methods: Sequence[str], families: Sequence[str]) -> Picture:
    """Methods on families: the mean, which comes first in both arrays, as bars, each family as a cell.

    A bar is the method's own rule, a diamond a threshold at the estimated share of unknown samples.
    """
    picture = Picture(figsize=(4.6 + 1.05 * len(families), 0.36 * len(methods) + 1.5), layout="constrained")
    bars, cells = picture.subplots(1, 2, sharey=True, width_ratios=(3.4, 1.05 * len(families)))
    place = np.arange(len(methods))
    bars.barh(
        place, own[:, 0], color=["#d55e00" if name == "mixture" else "#56b4e9" for name in methods], label="own rule"
    )
    bars.plot(estimated[:, 0], place, "D", color="#333333", markersize=4, label="estimated share rejected")
    for y, value in enumerate(own[:, 0]):
        bars.text(1, y, f"{value:.1f}", va="center", fontsize=8)
    bars.set_xlim(0, 100)
    bars.set_title("mean over families, percent", fontsize=10)
    bars.set_yticks(place, methods)
    bars.invert_yaxis()
    picture.legend(*bars.get_legend_handles_labels(), loc="outside lower left", ncols=2, fontsize=8)
    cells.imshow(own[:, 1:], vmin=0, vmax=100, cmap="viridis", aspect="auto")
    best = np.nanmax(own[:, 1:], 0)
    for (i, j), value in np.ndenumerate(own[:, 1:]):
        weight = "bold" if value == best[j] else "normal"
        cells.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=8, weight=weight,
                   color="white" if value < 65 else "black")  # fmt: skip
    cells.set_xticks(range(len(families)), families, fontsize=8)
    cells.set_title("each family, own rule (the best in bold)", fontsize=10)
    return picture


def histograms(edges: np.ndarray, panels: Mapping[str, Mapping[str, np.ndarray]], axis: str) -> Picture:
    """A panel for each title: the density of each group over the bins."""
    picture = Picture(figsize=(4.6 * len(panels), 3.2), layout="constrained")
    for axes, (title, groups) in zip(
        picture.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
    ):
        for (name, counts), colour in zip(groups.items(), COLOURS, strict=False):
            density = counts / max(counts.sum(), 1) / np.diff(edges)
            axes.stairs(density, edges, fill=True, alpha=0.45, color=colour, label=name)
            axes.axvline(float(counts @ (edges[:-1] + edges[1:]) / 2 / max(counts.sum(), 1)), color=colour)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(axis)
        axes.legend(fontsize=8)
    picture.supylabel("density", fontsize=10)
    return picture


def heat_maps(
    ticks: tuple[Sequence[int], Sequence[int]],
    grids: Mapping[str, Mapping[str, np.ndarray]],
    axes_names: tuple[str, str],
) -> Picture:
    """A row for each metric, a column for each method; an empty cell has no value."""
    columns = len(next(iter(grids.values())))
    picture = Picture(figsize=(3.1 * columns + 0.6, 3.5 * len(grids)), layout="constrained")
    places = picture.subplots(len(grids), columns, squeeze=False)
    for row, (metric, baselines) in zip(places, grids.items(), strict=True):
        for axes, (name, values) in zip(row, baselines.items(), strict=True):
            image = axes.imshow(values, origin="lower", vmin=0, vmax=100, cmap="viridis")
            for (i, j), value in np.ndenumerate(values):
                if np.isfinite(value):
                    colour = "white" if value < 65 else "black"
                    axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=8, color=colour)
            axes.set_title(f"{name}, {metric}", fontsize=10)
            axes.set_xticks(range(len(ticks[1])), map(str, ticks[1]))
            axes.set_yticks(range(len(ticks[0])), map(str, ticks[0]))
    picture.supylabel(axes_names[0], fontsize=10)
    picture.supxlabel(axes_names[1], fontsize=10)
    picture.colorbar(image, ax=places, shrink=0.8, label="percent")
    return picture
