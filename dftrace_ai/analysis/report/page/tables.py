"""Tables and lists of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.drawing.colours import of_span
from dftrace_ai.analysis.report.drawing.svg import told
from dftrace_ai.analysis.why.words import beside_text, part_name, percent, sureness, time_text
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.analysis.report.model import (
        ProcessFacts,
        ReportFigures,
        SlowStepFigures,
    )
    from dftrace_ai.analysis.report.series_model import TensorFigures
    from dftrace_ai.analysis.why.model import Finding, Verdict

__all__ = ["facts", "files", "losses", "names", "ranks", "slowest", "stopped", "table", "verdict"]

MOST_NAMES: Final = 25
MOST_ROWS: Final = 64
MOST_FINDINGS: Final = 8
PARTS_TOLD: Final = 3
LEAST_PART: Final = 0.005


def table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 0) -> str:
    """Return a table of cells that are escaped.

    Args:
        name: its element's.
        heads: of the columns.
        rows: cells.
        figures: so many columns at the end hold figures.
    """
    first = len(heads) - figures

    def cells(kind: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{kind}{' class=figure' if at >= first else ' class=key' if not at else ''}>"
            f"{value}</{kind}>"
            for at, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>"
    return f'<div class=wide><table id="{name}">{head}<tbody>{body}</tbody></table></div>'


def losses(figures: ReportFigures) -> str:
    """Return what stands above everything else: what the figures do not hold."""
    events = counted(figures.summary.events, "event")
    if not figures.losses:
        return (
            f"<p id=lost class=whole>Nothing was lost: {events} in "
            f"{counted(len(figures.summary.files), 'file')}.</p>"
        )
    items = "".join(f"<li>{told(line, 1000)}</li>" for line in figures.losses)
    return (
        "<div class=lost id=lost role=alert><strong>Not everything is on this page.</strong> "
        f"{events} were read.<ul>{items}</ul></div>"
    )


def verdict(found: Verdict) -> str:
    """Return what `dftrace why` says."""
    first = found.findings[0] if found.findings else None
    severity = first.severity if first else "info"
    if first is not None:
        head = first.kind.upper() + ("" if severity == "info" else f" {sureness(first)}")
        what = f"{first.what}{_whose(first, found)}"
    else:
        head = "NOTHING STANDS OUT" if found.verdict == "none" else "NO VERDICT"
        what = ""
    rows = "".join(f"<dt>{name}</dt><dd>{told(text, 1000)}</dd>" for name, text in _rows(found))
    return (
        f"<div class='verdict {severity}' id=verdict><h3>{told(head)}</h3>"
        f"<p class=what>{told(what, 1000)}</p><dl>{rows}</dl></div>"
    )


def _whose(finding: Finding, found: Verdict) -> str:
    if found.ranks < 2:
        return ""
    return f" On {len(finding.ranks)} of {found.ranks} ranks."


def _rows(found: Verdict) -> Iterator[tuple[str, str]]:
    if found.findings:
        first = found.findings[0]
        if first.because:
            yield "because", first.because
        if first.next:
            yield "do next", first.next
    for other in found.findings[1:MOST_FINDINGS]:
        yield "also", f"{other.what}{_whose(other, found)} {sureness(other)} {other.next}"
    for other in found.of_some_ranks[:MOST_FINDINGS]:
        yield "some ranks", f"{other.what}{_whose(other, found)} {sureness(other)} {other.next}"
    steps = found.steps
    if steps is not None:
        each = f", {steps.accumulation} micro-batches each" if steps.accumulation > 1 else ""
        shown = f", shown of rank {found.rank}" if found.ranks > 1 else ""
        steady = counted(steps.steady, "steady step")
        yield (
            "judged",
            (
                f"{steady} of {steps.count:,}, by {steps.found_by}{each}{shown}; a step takes "
                f"{time_text(steps.median_ns)}"
            ),
        )
    for one in found.abstained:
        yield "silent", f"{one.what}: {one.why}"
    for note in found.notes:
        yield "note", note
    if found.unseen:
        yield "unseen", "; ".join(found.unseen)


def slowest(figures: ReportFigures) -> str:
    """Return the slowest steps."""
    several = len(figures.ranks) > 1
    beside = [_beside(step) for step in figures.slowest]
    some = any(beside)
    heads = [*(["rank"] if several else []), "step", "epoch", "what it is", "most of it"]
    heads += [*(["beside it"] if some else []), "show it"]
    rows = []
    for step, told_beside in zip(figures.slowest, beside, strict=True):
        epoch = "" if step.epoch is None else str(step.epoch)
        cells = [str(step.step), epoch, step.kind, _most(step)]
        cells += [*([told_beside] if some else []), f"<code>--at {step.at}</code>"]
        rows.append([*([str(step.rank)] if several else []), *map(str, cells), time_text(step.ns)])
    where = told(" ".join(figures.paths), 300)
    how = f"<p class=faint>Opened around a step: <code>dftrace view {where} --at ...</code></p>"
    return table("slowest", [*heads, "time"], rows, 1) + how


def _beside(step: SlowStepFigures) -> str:
    tensor = step.nonfinite_tensor
    return told(beside_text(step.rss_bytes, step.device_bytes, step.nonfinite, tensor))


def _most(step: SlowStepFigures) -> str:
    whole = max(step.ns, 1)
    found = sorted(step.parts.items(), key=lambda part: -part[1])[:PARTS_TOLD]
    return ", ".join(
        # A share and its sign are not torn apart.
        f"{part_name(part)} {percent(ns / whole)}".replace(" %", "&nbsp;%")
        for part, ns in found
        if ns >= LEAST_PART * whole
    )


def ranks(figures: ReportFigures) -> str:
    """Return the ranks beside each other, where there are several."""
    if len(figures.ranks) < 2:
        return ""
    heads = ["rank", "host", "workers", "steps", "median", "p95", "longest", "waits", "comm"]
    rows = [
        [
            *(str(one.rank), told(one.host), str(one.workers), f"{one.steps:,}"),
            *(time_text(one.p50_ns), time_text(one.p95_ns), time_text(one.max_ns)),
            *(percent(one.wait_share), percent(one.comm_share)),
        ]
        for one in figures.ranks[:MOST_ROWS]
    ]
    more = len(figures.ranks) - len(rows) + figures.ranks_left_out
    return table("ranks", heads, rows, 7) + _more(more, "rank")


def names(figures: ReportFigures) -> str:
    """Return the names whose spans have most self time."""
    summary = figures.summary
    rows = []
    for row in summary.spans[:MOST_NAMES]:
        swatch = f'<span class=swatch style="background:{of_span(row.cat, row.name or "")}"></span>'
        body = " <span class=faint>(body of the loop)</span>" if row.loop == "body" else ""
        times = (row.total_us, row.self_us, row.mean_us, row.p50_us, row.p99_us, row.max_us)
        rows.append(
            [
                *(swatch + told(row.cat), told(row.name or "") + body, f"{row.count:,}"),
                *("-" if us is None else time_text(us * 1000) for us in times),
                "-" if row.share is None else f"{row.share:.1%}",
            ]
        )
    if not rows:
        return "<p>There are no finished spans.</p>"
    heads = ["category", "name", "count", "total", "self", "mean", "p50", "p99", "max", "share"]
    left = len(summary.spans) - len(rows) + summary.rows_left_out + summary.names_left_out
    share = "<p class=faint>By self time; share is self, of the time that their processes went.</p>"
    return table("names", heads, rows, 8) + share + _more(left, "name", "dftrace summary has all")


def _more(count: int, noun: str, where: str = "") -> str:
    if count <= 0:
        return ""
    return f"<p class=faint>{counted(count, noun)} more{f'; {where}' if where else ''}.</p>"


def stopped(found: TensorFigures) -> str:
    """Return when tensors stopped being finite, where any did."""
    if not found.stopped:
        return ""
    rows = [
        [
            *(told(mark.layer), told(mark.tensor), told(mark.process)),
            f"<code>--at {mark.at}</code>",
            *map(_said, (mark.iteration, mark.n_nan, mark.n_inf)),
        ]
        for mark in found.stopped
    ]
    heads = ["layer", "tensor", "process", "show it", "iteration", "NaN", "infinite"]
    title = "<p><b>When tensors stopped being finite</b></p>"
    return title + table("stopped", heads, rows, 3) + _more(found.stopped_left_out, "moment")


def facts(figures: ReportFigures) -> str:
    """Return what the processes say of themselves; what all say alike, once."""
    processes = figures.processes
    all_said = [_facts_of(one) for one in processes]
    said = {name: [one[name] for one in all_said] for name in all_said[0]} if all_said else {}
    # Workers do not say all that ranks do.
    told_values = {
        name: sorted({value for value in values if value}) for name, values in said.items()
    }
    alike = {name: "".join(values) for name, values in told_values.items() if len(values) < 2}
    rows = "".join(
        f"<dt>{name}</dt><dd>{told(value, 400)}</dd>" for name, value in alike.items() if value
    )
    rest = [name for name in said if name not in alike]
    own = ""
    if len(processes) > 1 and rest:
        lines = [
            [told(one.process), *(told(said[name][at], 120) for name in rest)]
            for at, one in enumerate(processes[:MOST_ROWS])
        ]
        own = table("processes", ["process", *rest], lines)
        own += _more(max(0, len(processes) - MOST_ROWS) + figures.processes_left_out, "process")
    return f"<dl id=facts>{rows}</dl>{own}"


def _facts_of(one: ProcessFacts) -> dict[str, str]:
    return {
        "host": one.host,
        "pid": _said(one.pid),
        "run": one.run,
        "ranks": _said(one.world_size),
        "command": one.command,
        "Python": one.python,
        "torch": one.torch,
        "dftrace_ai": one.version,
        "system": one.system,
        "processors": _said(one.cpus),
        "memory": f"{one.memory_bytes / 2**30:.1f} GiB" if one.memory_bytes else "",
    }


def _said(value: int | None) -> str:
    return "" if value is None else str(value)


def files(figures: ReportFigures) -> str:
    """Return the files that were read, with how each ended and what it lost."""
    rows = [
        [
            told(file.path, 300),
            told(file.ended or ("closed" if file.closed else "not closed")),
            told(", ".join(f"{name} {count:,}" for name, count in file.losses.items()) or "-"),
            "-" if file.events is None else f"{file.events:,}",
        ]
        for file in figures.summary.files[:MOST_ROWS]
    ]
    more = len(figures.summary.files) - len(rows)
    heads = ["file", "ended by", "counted losses", "events"]
    return table("files", heads, rows, 1) + _more(more, "file", "or more; dftrace summary --json")
