"""Writes the JSON Schemas of files: ``python schemas/generate_schemas.py``.

The schemas are made from the models in `dftrace_ai.trace_format.lines`, `dftrace_ai.live`,
`dftrace_ai.config.settings`, `dftrace_ai.inspect.config`, `dftrace_ai.loggers.config`,
`dftrace_ai.analysis.why`, `dftrace_ai.analysis.ranks`, `dftrace_ai.analysis.whatif`,
`dftrace_ai.analysis.diff`, `dftrace_ai.analysis.summary`,
`dftrace_ai.analysis.converting.placing`, `dftrace_ai.analysis.merging`,
`dftrace_ai.analysis.validating`,
`dftrace_ai.analysis.trace_facts`, `dftrace_ai.analysis.report`, `dftrace_ai.cli.migrate` and what
`_printed_schemas` names, with sorted keys, so that the same models always give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from inspect_config import config_schema
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from run_lines import LogLine
from setting_values import agreements, alternatives, as_read
from typing_extensions import TypedDict

from dftrace_ai.config.project_file import OF_PROJECT, OPTIONS, SEVERITIES
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.trace_format.json_types import JsonObject
from dftrace_ai.trace_format.lines import event_adapter

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["schema_texts"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Schema(GenerateJsonSchema):
    """Makes schemas without keywords that JSON Schema does not know."""

    def tagged_union_schema(self, schema: Any) -> dict[str, Any]:
        found = super().tagged_union_schema(schema)
        found.pop("discriminator", None)
        return found


class _Printed(_Schema):
    """Makes schemas of what is printed, where what has a default is never left out."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        if field["type"] in {"dataclass-field", "model-field"}:
            return True
        return super().field_is_required(field, total)


def _event_schema() -> dict[str, Any]:
    schema = event_adapter().json_schema(schema_generator=_Schema)
    schema["title"] = "A line of a dftrace trace file"
    schema["description"] = (
        "Each line after the first, which is '[', is one such object, without a comma behind it."
    )
    return schema


def _config_schema() -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, row in SETTINGS.items():
        kinds = alternatives(name)
        properties[name] = {
            "title": name.replace("_", " ").title(),
            "description": row.about,
            "default": str(row.default) if isinstance(row.default, Path) else row.default,
            **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}),
            "x-environment-variable": row.variable,
        }
    return {
        "title": "Settings of a dftrace run",
        "description": "The YAML file that DFTRACE_CONFIG names; every key may be left out.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "allOf": agreements(),
    }


def _project_schema() -> dict[str, Any]:
    numbers = {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}
    kinds = {
        "threshold": {"type": "object", "additionalProperties": numbers},
        "fail-on": {"enum": [*SEVERITIES]},
        "fail-if": {"type": "array", "items": {"type": "string"}},
    }
    settings = _config_schema()
    tables = {
        command: {
            "title": f"Options of `dftrace {command}`",
            "type": "object",
            "properties": {name: kinds[name] for name in names},
            "additionalProperties": False,
        }
        for command, names in OPTIONS.items()
    }
    of_project = {
        name: about for name, about in settings["properties"].items() if name in OF_PROJECT
    }
    return {
        **settings,
        "title": "What a project says to dftrace",
        "description": "`dftrace.toml`, or the table `[tool.dftrace]` of `pyproject.toml`.",
        "properties": {**of_project, **tables},
    }


def _snapshot_schema() -> dict[str, Any]:
    from dftrace_ai.live.saved import snapshot_adapter

    schema = snapshot_adapter().json_schema(schema_generator=_Printed)
    schema["title"] = "What `dftrace top --json` prints, and `dftrace stuck` reads"
    return schema


def _live_schema() -> dict[str, Any]:
    from dftrace_ai.live.told import live_file_adapter

    schema = live_file_adapter().json_schema(schema_generator=_Schema)
    schema["title"] = "What a process tells other hosts, beside its trace"
    schema["required"] = sorted([*schema["required"], "kind", "format"])
    return schema


def _inspect_schema() -> dict[str, Any]:
    schema = config_schema()
    schema["title"] = "Config of tensor inspection"
    schema["description"] = (
        "Sections by name, each with a selection of layers and the features for them. Custom "
        "features are checked by `dftrace inspect check` only."
    )
    return schema


def _loggers_schema() -> dict[str, Any]:
    from dftrace_ai.loggers.config import LoggersFile

    schema = LoggersFile.model_json_schema()
    schema["title"] = "Config of experiment loggers"
    schema["description"] = "What `make_loggers` takes; other keys of the file are not looked at."
    settings = schema["$defs"]["EntryConfig"]["properties"]
    for name, field in settings.items():
        settings[name] = as_read(field)
    mode = settings["file_mode"]
    del mode["type"]
    mode["anyOf"] = alternatives("file_mode")
    entries = schema["properties"]["logger"]
    # An entry without settings may be left empty.
    entries["additionalProperties"] = {"anyOf": [entries["additionalProperties"], {"type": "null"}]}
    entries["minProperties"] = 1
    return schema


def _log_line_schema() -> dict[str, Any]:
    schema = TypeAdapter(LogLine).json_schema(schema_generator=_Schema)
    schema["title"] = "A line of the log of an experiment, which the interface `local` writes"
    schema["description"] = (
        "Each line of `rank*.jsonl` is one such object, nested 64 deep at most. Numbers that are "
        "not finite are texts. Other members are left alone."
    )
    return schema


def _why_schema() -> dict[str, Any]:
    from dftrace_ai.analysis.why.model import verdict_adapter

    schema = verdict_adapter().json_schema(schema_generator=_Printed)
    schema["title"] = "What `dftrace why --json` prints"
    return schema


def _diff_schema() -> dict[str, Any]:
    from dftrace_ai.analysis.diff.model import diff_adapter

    schema = diff_adapter().json_schema(schema_generator=_Printed)
    schema["title"] = "What `dftrace diff --json` prints"
    return schema


def _report_schema() -> dict[str, Any]:
    from dftrace_ai.analysis.report.model import figures_adapter

    schema = figures_adapter().json_schema(schema_generator=_Printed)
    schema["title"] = "What `dftrace report --json` prints, and its page holds"
    return schema


def _printed_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of what commands print whose models have no function of their own."""
    from dftrace_ai.analysis.converting.placing import Converted
    from dftrace_ai.analysis.merging import Merged
    from dftrace_ai.analysis.ranks.model import RanksVerdict
    from dftrace_ai.analysis.summary.indexing import IndexReport
    from dftrace_ai.analysis.summary.report import Report as SummaryReport
    from dftrace_ai.analysis.trace_facts import TraceFacts
    from dftrace_ai.analysis.validating import Validation
    from dftrace_ai.analysis.whatif.model import WhatIf
    from dftrace_ai.analysis.why import Verdict as WhyVerdict
    from dftrace_ai.cli import demo
    from dftrace_ai.cli.export import Exported
    from dftrace_ai.cli.inspect import Features, Report
    from dftrace_ai.cli.migrate import Migration
    from dftrace_ai.generating.writing import Generated, Truth
    from dftrace_ai.live.dumps.words import DumpsReport
    from dftrace_ai.live.stuck import Verdict
    from dftrace_ai.loggers.runs.report_types import ComparisonReport, RunsReport
    from dftrace_ai.spools.completing import RecoveryReport

    headings = dict.fromkeys(
        ("versions", "native core", "environment", "settings", "sources", "plug-ins"), JsonObject
    )
    kind = Literal["dftrace installation"]
    installation: Any = TypedDict("Installation", {"kind": kind, **headings})  # type: ignore[misc]
    # Commands are to load without what judges steps; pydantic looks there for its type.
    vars(demo)["Verdict"] = WhyVerdict
    printed: dict[str, tuple[Any, str]] = {
        "summary": (SummaryReport, "dftrace summary --json"),
        "ranks": (RanksVerdict, "dftrace ranks --json"),
        "whatif": (WhatIf, "dftrace whatif --json"),
        "convert": (Converted, "dftrace convert --json"),
        "export": (Exported, "dftrace export --json"),
        "merge": (Merged, "dftrace merge --json"),
        "validate": (Validation, "dftrace validate --json"),
        "migrate": (Migration, "dftrace migrate --json"),
        "info": (TraceFacts, "dftrace info --json"),
        "index": (IndexReport, "dftrace index --json"),
        "recover": (RecoveryReport, "dftrace recover --json"),
        "demo": (demo.DemoReport, "dftrace demo --json"),
        "generate": (Generated, "dftrace generate --json"),
        "generated": (Truth, "truth.json beside made traces"),
        "stuck": (Verdict, "dftrace stuck --json"),
        "stuck-dumps": (DumpsReport, "dftrace stuck DUMPS... --json"),
        "runs": (RunsReport, "dftrace runs --json"),
        "runs-compare": (ComparisonReport, "dftrace runs --compare --json"),
        "inspect-check": (Report, "dftrace inspect check --json"),
        "inspect-features": (Features, "dftrace inspect features --json"),
        "installation": (installation, "dftrace info --json"),
    }
    of = {"installation": " of an installation", "info": " of traces"}
    return {
        f"{name}.schema.json": {
            **TypeAdapter(model).json_schema(schema_generator=_Printed),
            "title": f"What `{command}` prints{of.get(name, '')}",
        }
        for name, (model, command) in printed.items()
    }


def schema_texts() -> dict[str, str]:
    """Return the text of each schema file by its file name."""
    schemas = {
        "event.schema.json": _event_schema(),
        "config.schema.json": _config_schema(),
        "project.schema.json": _project_schema(),
        "live.schema.json": _live_schema(),
        "snapshot.schema.json": _snapshot_schema(),
        "inspect.schema.json": _inspect_schema(),
        "loggers.schema.json": _loggers_schema(),
        "run-line.schema.json": _log_line_schema(),
        "why.schema.json": _why_schema(),
        "diff.schema.json": _diff_schema(),
        "report.schema.json": _report_schema(),
        **_printed_schemas(),
    }
    return {
        name: json.dumps({"$schema": DIALECT, **schema}, indent=2, sort_keys=True) + "\n"
        for name, schema in schemas.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the schema files, or with ``--check`` tell whether they are as they should be."""
    parser = argparse.ArgumentParser(prog="python schemas/generate_schemas.py", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    options = parser.parse_args(arguments)
    stale = [
        options.directory / name
        for name, text in schema_texts().items()
        if not (options.directory / name).is_file()
        or (options.directory / name).read_text(encoding="utf-8") != text
    ]
    if options.check:
        for path in stale:
            sys.stdout.write(
                f"{path}: not as the models make it; run: python schemas/generate_schemas.py\n"
            )
        return 1 if stale else 0
    options.directory.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(schema_texts()[path.name], encoding="utf-8")
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
