"""Traces in another form, written beside the place and named when all of it is there."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, get_args

from dftrace_ai.analysis.converting.placing import (
    MANIFEST,
    Converted,
    ConvertedFile,
    Form,
    in_place,
    new_file,
)

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.analysis.reading import TraceSet


__all__ = [
    "FORMS",
    "Converted",
    "ConvertedFile",
    "Form",
    "convert",
]

FORMS: Final[tuple[Form, ...]] = get_args(Form)

REPORT_FORMAT: Final = 1


def convert(traces: TraceSet, to: Form, out: Path, *, force: bool = False) -> Converted:
    """Write traces in another form.

    Args:
        traces: which.
        to: ``"parquet"`` and ``"dftracer"`` make a directory, ``"perfetto"`` a file, which is
            compressed where its name ends in ``.gz``, as ``"otlp"`` does of the spans;
            ``"speedscope"`` and ``"pprof"`` make one of the samples of Python's stacks.
        out: what is written; it gets its name when all of it is there.
        force: what an earlier conversion has written there is replaced.

    Returns:
        What was written.

    Raises:
        DftraceError: it is there already, or cannot be written; then nothing is left of it.
        TraceError: a trace cannot be read any more.

    Example::

        convert(open_traces(["out/"]), "perfetto", Path("all.pfw.gz"))
    """
    directory = to in ("parquet", "dftracer")
    told: list[str] = []
    if to != "perfetto":
        traces, told = traces.on_one_clock()
    changed: list[str] = []
    inputs = [trace.path for trace in traces]
    with in_place(out, inputs, directory=directory, force=force) as unnamed:
        files, notes = _write(traces, to, unnamed, out, changed)
        notes = [*told, *notes]
        lines = sum(file.lines for file in files)
        made = Converted(
            REPORT_FORMAT, to, str(out), lines, tuple(files), tuple(notes), tuple(changed)
        )
        if directory:
            # A path that is not UTF-8 has halves of surrogates, which only escapes can carry.
            manifest = json.dumps(asdict(made), indent=2).encode("ascii")
            new_file(unnamed / MANIFEST)
            (unnamed / MANIFEST).write_bytes(manifest)
    return made


def _write(
    traces: TraceSet, to: Form, unnamed: Path, out: Path, changed: list[str]
) -> tuple[list[ConvertedFile], list[str]]:
    from dftrace_ai.analysis.converting.trace_forms import (
        write_as_otlp,
        write_as_parquet,
        write_for_dftracer,
        write_for_perfetto,
    )

    if to == "parquet":
        return write_as_parquet(traces, unnamed, out)
    if to == "perfetto":
        return write_for_perfetto(traces, unnamed, out.name, changed)
    if to == "otlp":
        return write_as_otlp(traces, unnamed, out.name)
    if to in ("speedscope", "pprof"):
        from dftrace_ai.analysis.converting import stack_forms

        write = stack_forms.write_for_pprof
        if to == "speedscope":
            write = stack_forms.write_for_speedscope
        return write(traces, unnamed, out.name)
    return write_for_dftracer(traces, unnamed)
