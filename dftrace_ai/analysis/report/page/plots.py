"""All plots of a report, by the sections of its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.analysis.report.drawing.flames import flame_plot, slow_step_plot
from dftrace_ai.analysis.report.drawing.heat import heat_plot
from dftrace_ai.analysis.report.drawing.lines import counter_plots, layer_plots, loader_plot
from dftrace_ai.analysis.report.drawing.steps import (
    epochs_plot,
    histogram_plot,
    parts_plot,
    times_plot,
)

if TYPE_CHECKING:
    from dftrace_ai.analysis.report.drawing.svg import Plot
    from dftrace_ai.analysis.report.model import ReportFigures

__all__ = ["MOST_SLOW_PLOTS", "Plots", "plots_of"]

MOST_SLOW_PLOTS = 3


class Plots:
    """The plots of a report; a section without figures has none.

    Attributes:
        steps: times of steps, their spread, and what they are made of.
        slowest: the slowest steps, one each.
        flame: where the time goes.
        loader: wait and work.
        tensors: heat maps.
        layers: the first of these, layer by layer.
        counters: one each.
    """

    def __init__(self, figures: ReportFigures) -> None:
        steps, tensors = figures.steps, figures.tensors
        self.parts = [] if steps is None else [parts_plot(steps), epochs_plot(steps)]
        self.steps = (
            [] if steps is None else [times_plot(steps, figures.slowest), histogram_plot(steps)]
        )
        self.slowest = [
            slow_step_plot(number, step)
            for number, step in enumerate(figures.slowest[:MOST_SLOW_PLOTS])
            if step.spans
        ]
        self.flame = [flame_plot(figures.flame)] if figures.flame.frames else []
        self.loader = [] if figures.loader is None else [loader_plot(figures.loader)]
        maps = [] if tensors is None else tensors.maps
        self.tensors = [heat_plot(number, heat) for number, heat in enumerate(maps)]
        self.layers = layer_plots(maps[0]) if maps else []
        self.counters = counter_plots(figures.counters)


def plots_of(figures: ReportFigures) -> list[Plot]:
    """Return all plots of a report, in the order of its page."""
    plots = Plots(figures)
    return [
        *(*plots.parts, *plots.steps, *plots.slowest, *plots.flame, *plots.loader),
        *(*plots.tensors, *plots.layers, *plots.counters),
    ]
