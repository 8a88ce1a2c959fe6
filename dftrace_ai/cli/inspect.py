"""`dftrace inspect`: configs of tensor inspection checked and explained, without training."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

# That of `typing` does not tell pydantic enough before Python 3.12.
from typing_extensions import TypedDict

from dftrace_ai.cli.commands import HELP_OPTIONS, QuickCommand, QuickGroup
from dftrace_ai.cli.shared_options import Json  # noqa: TC001 - typer evaluates the annotations
from dftrace_ai.cli.terminal import shown, write_out
from dftrace_ai.wording import counted, described, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.inspect.config.layers import LayerInfo
    from dftrace_ai.inspect.config.problems import Problem, Problems
    from dftrace_ai.inspect.config.schedule import Schedule
    from dftrace_ai.inspect.config.sections import (
        InspectConfig,
        LayerPlan,
        Modify,
        Observe,
        Section,
    )

PROBLEMS_FOUND = 1

FIRST_DUE = 5
LAYERS_SHOWN = 20

FeatureDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--feature-dirs",
        metavar="DIR",
        help="A directory with Python files that register features, as for `initialize`; all of "
        "them are executed. Give it again for further ones.",
    ),
]


class DueSteps(TypedDict):
    """The iterations in which something is done."""

    rule: str
    first: list[int]
    more: bool
    """There are others behind the first."""
    count: int | None
    """How many of `steps`; None where nobody said how long the training is."""
    steps: int | None


class StatisticsReport(TypedDict):
    """The statistics of a tensor."""

    feature: str
    tensor: str
    stats: list[str]
    due: DueSteps


class ModifiedTensor(TypedDict):
    """What is done with a tensor on its way into a GEMM."""

    feature: str
    format: str | None
    margin: float


class GemmReport(TypedDict):
    """A GEMM in which anything is done."""

    gemm: str
    fp8: bool
    modified: dict[str, ModifiedTensor]


class SectionReport(TypedDict):
    """A section of the config."""

    name: str
    layers: str
    selected: list[str] | None
    """Names of layers; None where there is no model."""
    gemms: list[GemmReport]
    statistics: list[StatisticsReport]
    explicit_statistics: list[StatisticsReport]
    custom_features: list[str]


class ProblemReport(TypedDict):
    """Something that is wrong."""

    severity: str
    where: str
    text: str
    error: str | None
    """Name of the exception that a training would get; None for a warning."""


class Report(TypedDict):
    """What a config does."""

    kind: Literal["dftrace inspect check"]
    config: str
    sections: list[SectionReport]
    disabled: list[str]
    layers_in_no_section: list[str] | None
    problems: list[ProblemReport]


class Features(TypedDict):
    """The features that a config can name, with what they do."""

    kind: Literal["dftrace inspect features"]
    features: dict[str, str]


app = typer.Typer(
    help="Check and explain configs of tensor inspection.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=QuickGroup,
    context_settings=HELP_OPTIONS,
)


@app.command(cls=QuickCommand)
def check(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The YAML file that a training is to use.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FACTORY",
            help="A function without arguments that makes the model, such as "
            "`train:make_model`; imported from the current directory, too, and called.",
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of the training; tells how many of them are due."),
    ] = None,
    feature_dirs: FeatureDirs = None,
    json: Json = False,
) -> None:
    """Tell what a config does: layers, tensors, GEMMs, iterations, and all that is wrong with it.

    Example: dftrace inspect check inspect.yaml --model train:make_model --iterations 1000

    Without a model, the layers are told as the rule that selects them. Exit status: 0 the
    config can be used, 1 it has errors, 2 the call is wrong.
    """
    from dftrace_ai.inspect.config.loading import examine
    from dftrace_ai.inspect.errors import InspectValueError

    try:
        fault = "is a directory" if config.is_dir() else ""
        fault = fault or ("" if config.exists() else "there is no such file")
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    if fault:
        raise InspectValueError(f"{quoted(str(config))}: {fault}")
    layers = None
    # Before the config is read: what it names has to be registered.
    _register(feature_dirs)
    if model is not None:
        layers = _layers_made_by(model)
    found, problems = examine(config)
    report = _report_of(str(config), found, problems, layers, iterations)
    write_out(_as_json(report) if json else "\n".join(_report_lines(report)) + "\n")
    if any(problem["severity"] == "error" for problem in report["problems"]):
        raise typer.Exit(PROBLEMS_FOUND)


@app.command(cls=QuickCommand)
def features(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAMES]...", help="Features to explain, such as FakeQuant, or `all`."
        ),
    ] = None,
    feature_dirs: FeatureDirs = None,
    json: Json = False,
) -> None:
    """List the features that a config can name, or explain some of them with their keys.

    Example: dftrace inspect features FakeQuant
    """
    from dftrace_ai.inspect.config.features import explanations, summaries

    _register(feature_dirs)
    found = explanations(names) if names else summaries()
    if json:
        report: Features = {"kind": "dftrace inspect features", "features": found}
        write_out(_as_json(report))
    elif names:
        write_out("\n".join(f"{name}\n{text}\n" for name, text in found.items()))
    else:
        width = max(map(len, found))
        write_out("".join(f"{name:{width}}  {text}\n" for name, text in found.items()))


def _as_json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2) + "\n"


def _register(feature_dirs: list[str] | None) -> None:
    """Execute the Python files of directories, as `initialize(feature_dirs=...)` does."""
    if not feature_dirs:
        return
    from dftrace_ai.inspect.arguments import executed
    from dftrace_ai.inspect.errors import InspectError, InspectValueError

    with contextlib.redirect_stdout(sys.stderr):
        try:
            executed(feature_dirs)
        except InspectError:
            raise
        # It is the user's code: anything may come out of it.
        except Exception as error:
            raise InspectValueError(f"--feature-dirs: {_described_in_line(error)}") from error


def _layers_made_by(factory: str) -> list[LayerInfo]:
    """Return the layers of the model that a function makes, such as ``train:make_model``."""
    from dftrace_ai.inspect.errors import InspectValueError

    module, colon, path = factory.partition(":")
    if not (module and colon and path):
        raise InspectValueError(
            f"--model {factory!r} is not accepted; accepted: module:function, "
            "such as train:make_model"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with contextlib.redirect_stdout(sys.stderr):
        try:
            made: Any = importlib.import_module(module)
            for name in path.split("."):
                made = getattr(made, name)
            made = made()
        # It is the user's code: anything may come out of it.
        except Exception as error:
            raise InspectValueError(f"--model {factory}: {_described_in_line(error)}") from error
    from torch import nn

    from dftrace_ai.inspect.naming import layers_of

    if not isinstance(made, nn.Module):
        raise InspectValueError(
            f"--model {factory}: gives a {type(made).__name__}; a torch.nn.Module is needed"
        )
    return [layer.info for layer in layers_of(made)]


def _described_in_line(error: Exception) -> str:
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{described(error)} ({last.filename}:{last.lineno})"


def _report_of(
    path: str,
    config: InspectConfig | None,
    problems: Sequence[Problem],
    layers: Sequence[LayerInfo] | None,
    steps: int | None,
) -> Report:
    """Return what a config does; None is what could not be read, or what nobody said."""
    from dftrace_ai.inspect.config.problems import Problems

    found = Problems(list(problems))
    selected = _selected(config, layers, found) if config and layers is not None else None
    sections = config.sections.values() if config else ()
    return {
        "kind": "dftrace inspect check",
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
    from dftrace_ai.inspect.config.sections import layer_plan
    from dftrace_ai.inspect.errors import InspectValueError

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
    from dftrace_ai.inspect.config.layers import LayerInfo, describe_layers
    from dftrace_ai.inspect.config.sections import layer_plan

    # It stands for the layers of the section where no model is given.
    plan = layer_plan(section, LayerInfo("any layer"))
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
    from dftrace_ai.inspect.config.names import GEMMS

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


def _report_lines(report: Report) -> Iterator[str]:
    """Yield a report as lines of text; names in them can only be read."""
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
    of_all = "" if due["count"] is None else f" ({due['count']:,} of {due['steps']:,})"
    yield shown(f"    {due['rule']}: {first}{', ...' if due['more'] else ''}{of_all}")


def _verdict(report: Report) -> str:
    from dftrace_ai.inspect.config.names import listed

    found = [
        counted(number, noun)
        for noun in ("error", "warning")
        if (number := sum(one["severity"] == noun for one in report["problems"]))
    ]
    return shown(f"{report['config']}: {listed(found) or 'no problems'}")
