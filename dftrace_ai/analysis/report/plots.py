"""The plots of a report, which a page, a notebook and a folder of files show alike."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.sections import LinePlot
from dftrace_ai.analysis.report.series_plots import (
    counter_plots,
    heat_plots,
    layer_plots,
    section_plot,
)
from dftrace_ai.analysis.report.step_plots import (
    epochs_plot,
    flame_plot,
    histogram_plot,
    loader_plot,
    parts_plot,
    phases_plot,
    ranks_plot,
    slow_step_plot,
    times_plot,
)
from dftrace_ai.page.svg import at_both_widths

if TYPE_CHECKING:
    from dftrace_ai.analysis.report.model import ReportFigures
    from dftrace_ai.page.svg import Plot

MOST_SLOW_PLOTS: Final = 3


class Plots:
    """The plots of a report by the section of its page; one without figures has none."""

    def __init__(self, figures: ReportFigures) -> None:
        steps, tensors, ranks = figures.steps, figures.tensors, figures.ranks
        several = len(ranks) + figures.ranks_left_out > 1
        self.parts: list[Plot] = []
        self.steps: list[Plot] = []
        if steps is not None:
            self.parts = [
                at_both_widths(partial(parts_plot, steps, several=several)),
                at_both_widths(partial(epochs_plot, steps)),
            ]
            self.steps = [
                at_both_widths(partial(times_plot, steps, figures.slowest)),
                at_both_widths(partial(histogram_plot, steps)),
            ]
        phases = figures.phases
        self.phases = (
            [at_both_widths(partial(phases_plot, phases, figures.wall_s))] if phases else []
        )
        self.slowest = [
            at_both_widths(partial(slow_step_plot, number, step, several=several))
            for number, step in enumerate(figures.slowest[:MOST_SLOW_PLOTS])
            if step.spans
        ]
        self.ranks = [at_both_widths(partial(ranks_plot, ranks))] if len(ranks) > 1 else []
        some = any(frame.total_ns for frame in figures.flame.frames)
        self.flame = [flame_plot(figures.flame)] if some else []
        stacks = figures.stacks
        self.lines = [flame_plot(stacks)] if stacks is not None and stacks.frames else []
        loader = figures.loader
        self.loader = [] if loader is None else [at_both_widths(partial(loader_plot, loader))]
        self.rank_maps = heat_plots(figures.rank_maps)
        maps = [] if tensors is None else tensors.maps
        self.tensors = heat_plots(maps)
        self.layers = layer_plots(maps[0]) if maps else []
        self.counters = counter_plots(figures.counters)
        # By section and block.
        self.sections = {
            (at, which): at_both_widths(partial(section_plot, f"{at + 1}-{which + 1}", block))
            for at, section in enumerate(figures.sections)
            for which, block in enumerate(section.blocks)
            if isinstance(block, LinePlot)
        }


def plots_of(figures: ReportFigures) -> list[Plot]:
    """Return all plots of a report, in the order of its page."""
    plots = Plots(figures)
    return [
        *(*plots.parts, *plots.phases, *plots.steps, *plots.slowest, *plots.ranks),
        *(*plots.rank_maps, *plots.flame, *plots.lines, *plots.loader),
        *(*plots.tensors, *plots.layers, *plots.counters),
        *plots.sections.values(),
    ]
