"""`dftrace info`: versions, what was built in, the environment and the settings in effect."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["collect", "command"]

FAULTS_FOUND = 1

PACKAGES = (
    "pydantic",
    "orjson",
    "zstandard",
    "psutil",
    "typer",
    "rich",
    "numpy",
    "duckdb",
    "viztracer",
    "torch",
)


def command(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show versions, compression libraries, clock, environment and the settings in effect.

    Exit status 1 when the native core is missing or the settings are not accepted.
    """
    facts = collect()
    if json:
        from dftrace_ai.cli.terminal import write_json

        write_json(facts)
    else:
        from rich import box
        from rich.table import Table

        from dftrace_ai.cli.terminal import console, shown

        out = console()
        for heading, rows in facts.items():
            table = Table(
                "", "", title=heading, title_justify="left", show_header=False, box=box.SIMPLE
            )
            for name, value in rows.items():
                lines = str(value).split("\n") if name == "error" else [value]
                table.add_row(shown(name), "\n".join(map(shown, lines)))
            out.print(table)
    if "error" in facts["native core"] or "error" in facts["settings"]:
        raise typer.Exit(FAULTS_FOUND)


def collect() -> dict[str, dict[str, object]]:
    """Gather the facts, by heading; a part that cannot be had is an ``error`` in its place."""
    return {
        "versions": _versions(),
        "native core": _native(),
        "environment": _environment(),
        "settings": _settings(),
    }


def _versions() -> dict[str, object]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, object] = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }

    def version_or_none(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    return found | {package: version_or_none(package) for package in ("dftrace-ai", *PACKAGES)}


def _native() -> dict[str, object]:
    try:
        import dftrace_ai._native as _native
    except ImportError as error:
        return {"error": f"not built, nothing can be recorded: {error}"}
    return dict(_native.build_info())


def _environment() -> dict[str, object]:
    import os

    return {
        name: os.environ[name]
        for name in sorted(os.environ)
        if name.startswith(("DFTRACE_", "DFTRACER_"))
    } or {"DFTRACE_*": "none set"}


def _settings() -> dict[str, object]:
    from dftrace_ai.config.loading import load_config
    from dftrace_ai.errors import ConfigError

    try:
        return load_config().model_dump(mode="json")
    except ConfigError as error:
        return {"error": str(error)}
