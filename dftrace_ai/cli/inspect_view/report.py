"""What `dftrace inspect check` prints: a config as plain values, and these as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.cli.terminal import shown
from dftrace_ai.inspect.config.layers import LayerInfo, describe_layers
from dftrace_ai.inspect.config.names import GEMMS, listed
from dftrace_ai.inspect.config.plans import LayerPlan, Modify, layer_plan
from dftrace_ai.inspect.config.problems import Problem, Problems
from dftrace_ai.inspect.errors import InspectValueError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.cli.inspect_view.report_types import (
        DueSteps,
        GemmReport,
        ModifiedTensor,
        Report,
        SectionReport,
        StatisticsReport,
    )
    from dftrace_ai.inspect.config.schedule import Schedule
    from dftrace_ai.inspect.config.sections import Observe, Section
    from dftrace_ai.inspect.config.selection import InspectConfig

__all__ = ["report_lines", "report_of"]

FIRST_DUE = 5
LAYERS_SHOWN = 20

# Stands for the layers of a section where no model is given.
ANY_LAYER = LayerInfo("any layer")


def report_of(
    path: str,
    config: InspectConfig | None,
    problems: Sequence[Problem],
    layers: Sequence[LayerInfo] | None,
    steps: int | None,
) -> Report:
    """Return what a config does, as values for JSON.

    Args:
        path: the file, as it was named.
        config: what was read; None where nothing could be.
        problems: what is wrong with the file by itself.
        layers: those of the model; None where there is no model.
        steps: the iterations of the training; None where nobody said.
    """
    found = Problems(list(problems))
    selected = _selected(config, layers, found) if config and layers is not None else None
    sections = config.sections.values() if config else ()
    return {
        "config": path,
        "sections": [
            _section(section, None if selected is None else selected[section.name], steps)
            for section in sections
        ],
        "disabled": list(config.disabled) if config else [],
        "layers_in_no_section": None if selected is None else selected[None],
        "problems": [
            {
                "severity": problem.severity,
                "where": problem.where,
                "text": problem.text,
                "error": problem.kind.__name__ if problem.severity == "error" else None,
            }
            for problem in found.found
        ],
    }


def _selected(
    config: InspectConfig, layers: Sequence[LayerInfo], problems: Problems
) -> dict[str | None, list[str]]:
    """Return the names of the layers of each section, and under None those of no section."""
    selector = config.selector(layers)
    selected: dict[str | None, list[str]] = {None: [], **{name: [] for name in config.sections}}
    without: dict[tuple[str, str], list[str]] = {}
    clashes: list[str] = []
    clashing: set[str] = set()
    for layer in layers:
        try:
            section = selector.section_of(layer)
        except InspectValueError as error:
            clashes.append(str(error))
            clashing.update(one.name for one in selector.sections_of(layer))
            continue
        selected[section.name if section else None].append(layer.name)
        for feature in layer_plan(section, layer).ignored:
            without.setdefault((section.name if section else "", feature), []).append(layer.name)
    for text in clashes[:LAYERS_SHOWN]:
        problems.error("", text)
    if len(clashes) > LAYERS_SHOWN:
        others = len(clashes) - LAYERS_SHOWN
        problems.error("", f"{others} more layers are selected by more than one section")
    for section, name in selector.unmatched_names():
        problems.warning(f"{section.name}.layers.exact_layer_names", f"no layer is called {name}")
    for name in config.sections:
        if not selected[name] and name not in clashing:
            problems.warning(f"{name}.layers", "no layer of the model is selected")
    for (name, feature), skipped in without.items():
        more = f" and {len(skipped) - 3} more" if len(skipped) > 3 else ""
        problems.warning(
            name,
            f"{feature} has no effect on {', '.join(skipped[:3])}{more}: "
            "no GEMMs that can be run otherwise",
        )
    return selected


def _section(section: Section, selected: list[str] | None, steps: int | None) -> SectionReport:
    plan = layer_plan(section, ANY_LAYER)
    return {
        "name": section.name,
        "layers": describe_layers(section.layers),
        "selected": selected,
        "gemms": _gemms(section, plan),
        "statistics": [_statistics(one, steps) for one in plan.observe],
        "explicit_statistics": [_statistics(one, steps) for one in section.base_observes()],
        "custom_features": [use.feature.full_name for use in section.custom],
    }


def _gemms(section: Section, plan: LayerPlan) -> list[GemmReport]:
    """Return what is done in each GEMM in which anything is done."""
    found: list[GemmReport] = []
    for gemm in GEMMS:
        tensors = {
            tensor: _modified(how) for (other, tensor), how in plan.modify.items() if other == gemm
        }
        if tensors or gemm in plan.high_precision:
            found.append(
                {"gemm": gemm, "fp8": gemm not in plan.high_precision, "modified": tensors}
            )
    return found


def _modified(how: Modify) -> ModifiedTensor:
    return {"feature": how.feature, "format": how.format, "margin": how.margin}


def _statistics(one: Observe, steps: int | None) -> StatisticsReport:
    return {
        "feature": one.feature,
        "tensor": one.tensor,
        "stats": list(one.stats),
        "due": _due(one.schedule, steps),
    }


def _due(schedule: Schedule, steps: int | None) -> DueSteps:
    first = schedule.first(FIRST_DUE + 1)
    if steps is not None:
        first = [iteration for iteration in first if iteration < steps]
    return {
        "rule": schedule.rule,
        "first": first[:FIRST_DUE],
        "more": len(first) > FIRST_DUE,
        "count": None if steps is None else schedule.count(steps),
        "steps": steps,
    }


def report_lines(report: Report) -> Iterator[str]:
    """Return the lines of text for what `report_of` made; names in them can only be read."""
    for section in report["sections"]:
        yield shown(section["name"])
        yield shown(f"  layers {section['layers']}")
        if section["selected"] is not None:
            yield from _names(section["selected"])
        for gemm in section["gemms"]:
            yield shown(f"  {_gemm_in_words(gemm)}")
        for one in section["statistics"]:
            yield from _statistics_lines(one, one["feature"])
        for one in section["explicit_statistics"]:
            yield from _statistics_lines(one, "log_tensor_stats")
        for name in section["custom_features"]:
            yield shown(f"  {name}")
        yield ""
    if report["disabled"]:
        yield shown(f"not enabled: {', '.join(report['disabled'])}")
    if report["layers_in_no_section"]:
        yield "layers in no section:"
        yield from _names(report["layers_in_no_section"])
    for problem in report["problems"]:
        where = f"{problem['where']}: " if problem["where"] else ""
        yield shown(f"{problem['severity']}: {where}{problem['text']}")
    yield _verdict(report)


def _names(names: list[str]) -> Iterator[str]:
    for name in names[:LAYERS_SHOWN]:
        yield shown(f"    {name}")
    if len(names) > LAYERS_SHOWN:
        yield f"    and {len(names) - LAYERS_SHOWN} more"


def _gemm_in_words(one: GemmReport) -> str:
    words = [f"{one['gemm']}: {'FP8' if one['fp8'] else 'high precision'}"]
    for tensor, how in one["modified"].items():
        margin = f", margin {how['margin']}" if how["margin"] else ""
        kind = f" to {how['format']}" if how["format"] else ""
        words.append(f"{tensor} by {how['feature']}{kind}{margin}")
    return "; ".join(words)


def _statistics_lines(one: StatisticsReport, heading: str) -> Iterator[str]:
    yield shown(f"  {heading} {one['tensor']}: {', '.join(one['stats'])}")
    due = one["due"]
    first = ", ".join(map(str, due["first"])) or "none"
    counted = "" if due["count"] is None else f" ({due['count']:,} of {due['steps']:,})"
    yield shown(f"    {due['rule']}: {first}{', ...' if due['more'] else ''}{counted}")


def _verdict(report: Report) -> str:
    from dftrace_ai.wording import counted

    found = [
        counted(number, noun)
        for noun in ("error", "warning")
        if (number := sum(one["severity"] == noun for one in report["problems"]))
    ]
    return shown(f"{report['config']}: {listed(found) or 'no problems'}")
