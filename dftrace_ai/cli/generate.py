"""`dftrace generate`: made traces of many ranks, with causes and clocks that are known."""

from __future__ import annotations

from enum import Enum
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.shared_options import json_option
from dftrace_ai.cli.terminal import shown, write_json
from dftrace_ai.errors import ConfigError, needs_numpy
from dftrace_ai.wording import counted, quoted

if TYPE_CHECKING:
    from dftrace_ai.generating import JobClocks


class Compression(str, Enum):
    """How traces are compressed."""

    gzip = "gzip"
    zstd = "zstd"
    none = "none"


def command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that is empty, or is made.")],
    ranks: Annotated[int, typer.Option(min=1, metavar="N", help="Ranks of the job.")] = 8,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps of each.")] = 100,
    per_host: Annotated[int, typer.Option(min=1, metavar="N", help="Ranks of a host.")] = 8,
    buckets: Annotated[
        int, typer.Option(min=1, metavar="N", help="All-reduces of gradients in a step.")
    ] = 4,
    layers: Annotated[int, typer.Option(min=1, metavar="N", help="Layers of a forward.")] = 4,
    tp: Annotated[int, typer.Option(min=1, metavar="N", help="Ranks that share each layer.")] = 1,
    pp: Annotated[int, typer.Option(min=1, metavar="N", help="Stages of a pipeline.")] = 1,
    microbatches: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of a step of a pipeline.")
    ] = 8,
    workers: Annotated[
        int, typer.Option(min=0, metavar="N", help="Loader processes of a rank.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, metavar="SEED", help="Of all that is drawn.")] = 0,
    cause: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CAUSE",
            help="What is planted: slow-rank:R:MS, slow-host:H:PCT, loader:R:MS, rotating:MS, "
            "gc:MS:EVERY, checkpoint:MS:EVERY, link:H:PCT, stage:S:PCT, sequence:PCT, memory:R, "
            "dead:R:STEP, late-start:R:S; a job that hangs, with dumps: flight:WHAT:R:STEP, where "
            "WHAT is missing, op, size, dtype or unstarted. May be given again.",
        ),
    ] = None,
    offset_s: Annotated[
        float, typer.Option(metavar="S", help="Clocks of hosts are so far apart (sigma).")
    ] = 0.0,
    drift_ppm: Annotated[
        float, typer.Option(metavar="PPM", help="They drift by up to so many millionths.")
    ] = 0.0,
    step_clock: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:AT_S:MS", help="A clock is set while it runs."),
    ] = None,
    late_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:US", help="Ranks of a host see ends so much later."),
    ] = None,
    poll: Annotated[
        bool, typer.Option("--poll", help="Ends are seen as late as by a thread that polls.")
    ] = False,
    compression: Annotated[Compression, typer.Option(help="Of the traces.")] = Compression.gzip,
    index: Annotated[bool, typer.Option(help="End traces with an index.")] = True,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Work in so many processes; the bytes are the same."),
    ] = None,
    json: Annotated[bool, json_option("Print JSON instead of lines.")] = False,
) -> None:
    """Make the traces of a training of many ranks, with causes of lateness that are known.

    The same arguments give the same bytes. OUT/truth.json tells what was planted, what each cause
    costs, and how the clocks of hosts stand.

    Example: dftrace generate made --ranks 64 --steps 200 --cause slow-rank:17:6
    """
    with needs_numpy():
        from dftrace_ai.generating import Job, cause_of, generate

    job = Job(
        ranks=ranks,
        steps=steps,
        per_host=per_host,
        buckets=buckets,
        layers=layers,
        tp=tp,
        pp=pp,
        microbatches=microbatches,
        workers=workers,
        seed=seed,
        poll=poll,
        causes=tuple(cause_of(words) for words in cause or ()),
        clocks=_clocks(offset_s, drift_ppm, step_clock or [], late_host or []),
    )
    made = generate(job, out, compression=compression.value, index=index, jobs=jobs)
    if json:
        write_json(made)
    else:
        typer.echo(
            f"{counted(made.files, 'trace')} of {counted(ranks, 'rank')} in {shown(out)}, "
            f"{made.bytes:,} bytes; truth.json there tells what is true of them"
        )
    if made.dumps and not json:
        typer.echo(
            f"the job hangs: {counted(made.dumps, 'dump')} of the flight recorder beside the "
            f"traces, for dftrace stuck {shown(out)}"
        )


def _clocks(
    offset_s: float, drift_ppm: float, jumps: list[str], late_hosts: list[str]
) -> JobClocks:
    from dftrace_ai.generating import JobClocks
    from dftrace_ai.generating.job import Jump

    set_ = [_numbers("--step-clock", "HOST:AT_S:MS", words) for words in jumps]
    late = [_numbers("--late-host", "HOST:US", words) for words in late_hosts]
    if any(us < 0 for _, us in late):
        raise ConfigError("--late-host takes HOST:US, a time of 0 or more")
    return JobClocks(
        offset_s,
        drift_ppm,
        tuple(Jump(int(host), round(at_s * 1e9), round(ms * 1e6)) for host, at_s, ms in set_),
        tuple((int(host), round(us * 1e3)) for host, us in late),
    )


def _numbers(option: str, form: str, words: str) -> list[float]:
    """Read numbers with colons between them; the first is a whole one."""
    try:
        found = [float(word) for word in words.split(":")]
    except ValueError:
        found = []
    small = all(abs(number) < 1e9 for number in found)
    if len(found) != len(form.split(":")) or not small or found[0] < 0 or found[0] % 1:
        raise ConfigError(f"{option} takes {form}, not {quoted(words)}")
    return found
