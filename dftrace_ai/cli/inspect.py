"""`dftrace inspect`: configs of tensor inspection checked and explained, without training."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import Annotated, Any

import typer

from dftrace_ai.wording import quoted

__all__ = ["app"]

PROBLEMS_FOUND = 1

FeatureDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--feature-dirs",
        metavar="DIR",
        help="A directory with Python files that register features, as for `initialize`; all of "
        "them are executed. Give it again for further ones.",
    ),
]

app = typer.Typer(
    help="Check and explain configs of tensor inspection.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
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
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Iterations of the training; tells how many of them are due."),
    ] = None,
    feature_dirs: FeatureDirs = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Tell what a config does: layers, tensors, GEMMs, iterations, and all that is wrong with it.

    Example: dftrace inspect check inspect.yaml --model train:make_model --steps 1000

    Without a model, the layers are told as the rule that selects them. Exit status: 0 the
    config can be used, 1 it has errors, 2 the call is wrong.
    """
    from dftrace_ai.cli.inspect_view.report import report_lines, report_of
    from dftrace_ai.cli.terminal import write_out
    from dftrace_ai.inspect.config.reading.loading import examine
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
        from dftrace_ai.cli.inspect_view.model import layers_made_by

        layers = layers_made_by(model)
    found, problems = examine(config)
    report = report_of(str(config), found, problems, layers, steps)
    write_out(_as_json(report) if json else "\n".join(report_lines(report)) + "\n")
    if any(problem["severity"] == "error" for problem in report["problems"]):
        raise typer.Exit(PROBLEMS_FOUND)


@app.command()
def features(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAMES]...", help="Features to explain, such as FakeQuant, or `all`."
        ),
    ] = None,
    feature_dirs: FeatureDirs = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the features that a config can name, or explain some of them with their keys.

    Example: dftrace inspect features FakeQuant
    """
    from dftrace_ai.cli.terminal import write_out
    from dftrace_ai.inspect.config.features import explanations, summaries

    _register(feature_dirs)
    found = explanations(names) if names else summaries()
    if json:
        write_out(_as_json(found))
    elif names:
        write_out("\n".join(f"{name}\n{text}\n" for name, text in found.items()))
    else:
        width = max(map(len, found))
        write_out("".join(f"{name:{width}}  {text}\n" for name, text in found.items()))


def _register(feature_dirs: list[str] | None) -> None:
    if feature_dirs:
        from dftrace_ai.cli.inspect_view.model import register_features_in

        register_features_in(feature_dirs)


def _as_json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2) + "\n"
