"""A picture of one run: throughput and lag over time, with every fault marked."""

import re
from math import nan
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.fault.results import Run, Sample

_FRACTION = re.compile(r"(\d\.\d)\d+")
"""Of a point on the page: a tenth is all that can be seen, and six digits make the file large."""
_WINDOW = 5
"""Samples over which a rate is smoothed."""
_POINTS_MAX = 400
"""Samples of a longer run are thinned out: the picture lies in the repository."""
_BLUE, _ORANGE, _GREY = "#1f6fb4", "#d9730d", "#c8c8c8"


def draw(run: Run, path: Path) -> None:
    """Write the picture of a run as SVG, the same bytes for the same run."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    rates, lags = figure.subplots(2, 1, sharex=True)
    samples = run.samples[:: 1 + len(run.samples) // _POINTS_MAX]
    minutes = [sample.at_s / 60 for sample in samples]
    for axes in (rates, lags):
        # From the bottom of the axes to their top; one broken line is one short path.
        at = [value for strike in run.strikes for value in (strike.at_s / 60,) * 3]
        height = [0.0, 1.0, nan] * len(run.strikes)
        whole = axes.get_xaxis_transform()
        axes.plot(at, height, color=_GREY, linewidth=0.5, zorder=0, transform=whole)
        axes.spines[["top", "right"]].set_visible(False)
    rates.plot(minutes, _rates(samples), color=_BLUE, linewidth=1)
    rates.set_ylabel("records done per second")
    rates.set_ylim(bottom=0)
    rates.set_title(f"{run.name}: {len(run.strikes)} faults (grey lines)", loc="left")
    lags.plot(minutes, [sample.lag for sample in samples], color=_ORANGE, linewidth=1)
    lags.set_ylabel("records behind")
    lags.set_ylim(bottom=0)
    lags.set_xlabel("minutes")
    with mpl.rc_context({"svg.hashsalt": "hapax", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
    path.write_text(_FRACTION.sub(r"\1", path.read_text()))


def _rates(samples: list[Sample]) -> list[float]:
    rates = []
    for at, sample in enumerate(samples):
        before = samples[max(0, at - _WINDOW)]
        seconds = sample.at_s - before.at_s
        rates.append((sample.done - before.done) / seconds if seconds > 0 else 0.0)
    return rates
