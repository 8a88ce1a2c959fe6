"""The page of a report: its sections, their tables and lists, and what a notebook shows of it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.analysis.reading.reach import local_text
from dftrace_ai.analysis.report.files import PAGE_MARK
from dftrace_ai.analysis.report.plots import Plots
from dftrace_ai.analysis.report.sections import Paragraph, Table
from dftrace_ai.analysis.report.step_plots import number_of, of_span
from dftrace_ai.analysis.summary.report import soundness
from dftrace_ai.analysis.texts import part_name, percent, time_text
from dftrace_ai.analysis.thresholds import silences, sureness
from dftrace_ai.analysis.why.words import (
    beside_text,
    first_rows,
    heading,
    judged_text,
    nonfinite_text,
    step_text,
    whose,
)
from dftrace_ai.page.shell import BUTTONS, Figure, html_page, inner_page, swatch, table
from dftrace_ai.page.svg import number_text, told
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.report.model import (
        LoaderFigures,
        ProcessFacts,
        ReportFigures,
        SlowStepFigures,
        TensorFigures,
    )
    from dftrace_ai.analysis.report.sections import ReportSection
    from dftrace_ai.analysis.why.model import Verdict
    from dftrace_ai.page.svg import Plot

MOST_NAMES: Final = 25
MOST_TABLE_ROWS: Final = 64
MOST_OPEN_ROWS: Final = 16
MOST_CONSTANT: Final = 6
MOST_FINDINGS: Final = 8
PARTS_TOLD: Final = 3
LEAST_PART: Final = 0.005
# A severity has a shape, a colour and a word.
MARKS: Final = {"critical": "■", "warning": "▲"}
HEIGHT: Final = re.compile(r'viewBox="0 0 [\d.]+ (\d+)')

STYLE: Final = """
body { max-width: 980px; }
.lost { background: var(--loud-paper); color: var(--ink); border-left: 5px solid var(--loud);
  padding: .6rem 1rem; margin: 1rem 0; overflow-wrap: anywhere; }
.lost strong { color: var(--loud); } .lost ul { margin: .3rem 0; padding-left: 1.2rem; }
.whole { color: var(--good); font-weight: 600; }
.verdict { background: var(--card); border-left: 5px solid var(--link); padding: .7rem 1rem; }
.verdict.critical { border-color: var(--loud); } .verdict.warning { border-color: var(--warn); }
.verdict h3 { margin: 0; font-size: .8rem; letter-spacing: .02em; }
.verdict.critical h3 { color: var(--loud); } .verdict.warning h3 { color: var(--warn); }
.verdict .what { font-size: 1.25rem; line-height: 1.35; font-weight: 600; }
.odd-rank { color: var(--loud); } summary { cursor: pointer; color: var(--link); }
select { font: 13px system-ui, sans-serif; color: var(--ink); background: var(--card);
  border: 1px solid var(--faint); border-radius: 4px; padding: .2rem .4rem; min-height: 30px;
  max-width: 100%; }
@media (max-width: 680px) { dl { grid-template-columns: 1fr !important; } dt { margin-top: .3rem; }
  .verdict .what { font-size: 1.1rem; } }
dl { display: grid; grid-template-columns: 6.5rem 1fr; gap: .15rem .5rem; margin: .5rem 0 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
#names td.key { min-width: 8rem; } #names td:nth-child(2) { min-width: 9rem; }
.plots figcaption { font-weight: 400; font-size: 11px; max-width: 296px; }
figcaption small { display: block; }
.plots .buttons { position: absolute; right: 2px; bottom: 2px; opacity: 0; float: none; }
@media print { .verdict, .lost { break-inside: avoid; } }
"""


def json_text(figures: ReportFigures) -> str:
    """Return figures as JSON in ASCII; a number that JSON has not got is null."""
    return json.dumps(_plain(asdict(figures)), default=str, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def page_of(figures: ReportFigures) -> str:
    """Return the page of a report."""
    sections = list(_sections(figures))
    links = "".join(
        f'<a href="#s-{name}">{title}</a>' for name, title, body in sections if title and body
    )
    bodies = "".join(
        f"<section><h2 id=s-{name}>{title}</h2>{body}</section>" if title else body
        for name, title, body in sections
        if body
    )
    return html_page(
        figures.title,
        _about(figures),
        [_losses(figures), _verdict(figures.verdict), f"<nav>{links}</nav>", bodies],
        tab=f"{figures.title}: report",
        style=STYLE,
        mark=PAGE_MARK,
        figures=json_text(figures),
    )


def _about(figures: ReportFigures) -> str:
    said = [f"{figures.wall_s:,.1f} s recorded"]
    if figures.began_at is not None:
        said.insert(0, f"began {local_text(figures.began_at)}")
    if figures.processes:
        count = len(figures.processes) + figures.processes_left_out
        said.append(f"{count:,} process{'' if count == 1 else 'es'}")
    if _several(figures):
        said.append(counted(len(figures.ranks) + figures.ranks_left_out, "rank"))
    said.append(f"made {figures.made_at}")
    return f"<p class=faint>{', '.join(told(each) for each in said)}</p>"


def _sections(figures: ReportFigures) -> Iterator[tuple[str, str, str]]:
    plots = Plots(figures)
    if figures.steps is None:
        yield "steps", "Steps", f"<p id=no-steps>{_no_steps(figures)}</p>"
    else:
        yield "parts", "Where a step goes", _drawn(plots.parts)
        yield "phases", "Over the run", _drawn(plots.phases)
        yield "steps", "Steps", _drawn(plots.steps)
        yield "slowest", "Slowest steps", _slowest(figures) + _drawn(plots.slowest)
    yield "ranks", "Ranks", _drawn(plots.ranks) + _drawn(plots.rank_maps) + _ranks(figures)
    yield "flame", "Where the time goes", _drawn(plots.flame) + _names(figures)
    if plots.lines:
        yield "lines", "Lines of the program", _drawn(plots.lines)
    if figures.loader is None:
        loader = "<p>No wait for data was recorded.</p>"
    else:
        loader = _waits(figures.loader, several=_several(figures)) + _drawn(plots.loader)
    yield "loader", "Loader", loader if figures.steps is not None else ""
    yield "tensors", "Tensors", _tensors(figures, plots)
    if plots.counters:
        left = figures.counters_left_out
        more = f"<p class=faint>{counted(left, 'number')} more not drawn.</p>" if left else ""
        yield "counters", "Counters", _small(plots.counters) + more
    for at, section in enumerate(figures.sections):
        yield f"section-{at + 1}", told(section.title), _section(at, section, plots)
    faults = "".join(f"<li>{told(line, 1000)}</li>" for line in figures.plugin_faults)
    yield "plug-ins", "Plug-ins", f"<ul>{faults}</ul>" if faults else ""
    yield "facts", "The run", _facts(figures) + _files(figures)


def _section(at: int, section: ReportSection, plots: Plots) -> str:
    who = told(f"by {section.name} of {section.package}", 300)
    shown = [f"<p class=faint>{who}</p>"]
    for which, block in enumerate(section.blocks):
        if isinstance(block, Paragraph):
            shown.append(f"<p>{told(block.text, 1000)}</p>")
        elif isinstance(block, Table):
            shown.append(_section_table(f"section-{at + 1}-{which + 1}", block))
        else:
            shown.append(_drawn([plots.sections[at, which]]))
    return "".join(shown)


def _section_table(name: str, given: Table) -> str:
    columns = [[row[at] for row in given.rows] for at in range(len(given.heads))]
    numeric = [not any(isinstance(cell, str) for cell in column) for column in columns]
    figures = next((at for at, is_one in enumerate(reversed(numeric)) if not is_one), len(numeric))
    rows = [
        [_long(told(cell, 300)) if isinstance(cell, str) else _figure(cell) for cell in row]
        for row in given.rows
    ]
    heads = [told(head) for head in given.heads]
    return _folded(table(name, heads, rows, figures, sorts=True), len(rows), "row")


def _figure(cell: float | None) -> Figure:
    return Figure("-" if cell is None else number_text(cell), cell)


def _several(figures: ReportFigures) -> bool:
    return len(figures.ranks) + figures.ranks_left_out > 1


def _waits(loader: LoaderFigures, *, several: bool) -> str:
    if loader.busy_share is not None:
        workers = counted(loader.workers_at_once, "worker")
        if loader.workers > loader.workers_at_once:
            workers += f" at a time, {loader.workers:,} in all"
        said = f"{workers}, busy for {percent(loader.busy_share)} of their time."
    elif loader.workers:
        said = f"{counted(loader.workers, 'worker')}, of whose work nothing was recorded."
    elif loader.inline:
        said = "There are no workers (<code>num_workers=0</code>): the training loads by itself."
    else:
        said = "No worker of a loader is in the traces."
    share = percent(loader.wait_share)
    who = f"{loader.who.capitalize()} waits" if several else "The steps wait"
    return f"<p>{who} for data for {share} of the training. {said}</p>"


def _no_steps(figures: ReportFigures) -> str:
    why = next((one.why for one in figures.verdict.abstained if one.what == "run"), "")
    return told(f"This run has no steps to show: {why}" if why else "This run has no steps.", 500)


def _tensors(figures: ReportFigures, plots: Plots) -> str:
    found = figures.tensors
    if found is None:
        return ""
    said = f"{counted(found.layers, 'layer')}; {told(', '.join(found.statistics), 400)}."
    said = f"<p>{said if found.statistics else 'There are no statistics of tensors.'}</p>"
    odd = ""
    if found.non_finite:
        odd = (
            f"<div class=lost><strong>{counted(found.non_finite, 'value')} NaN or infinite</strong>"
            f", first {told(found.first_non_finite)}.</div>"
        )
    more = (
        f"<p class=faint>{counted(found.maps_left_out, 'pair')} of statistic and tensor more not "
        "drawn.</p>"
        if found.maps_left_out
        else ""
    )
    title = ""
    if plots.layers:
        first = found.maps[0]
        what = f"{first.statistic} of {first.tensor}" if first.tensor else first.statistic
        title = f"<p><b>{told(what)}, layer by layer</b>, those that change most</p>"
    head = said + odd + _stopped(found)
    maps = _drawn(plots.tensors)
    if len(plots.tensors) > 1:
        choices = "".join(
            f"<option value={at}>{told(plot.title)}</option>"
            for at, plot in enumerate(plots.tensors)
        )
        maps = (
            "<p class=choose hidden><label>Statistic and tensor <select data-of=maps>"
            f"{choices}</select></label></p><div id=maps>{maps}</div>"
        )
    return f"{head}{maps}{more}{_constant(found)}{title}{_small(plots.layers)}"


def _constant(found: TensorFigures) -> str:
    """Tell what does not change, which has no picture."""
    if not found.constant:
        return ""
    items = []
    for one in found.constant:
        what = f"{one.statistic} of {one.tensor}" if one.tensor else one.statistic
        value = number_text(one.low)
        if one.low != one.high:
            value = f"{value} to {number_text(one.high)}, in each layer the same"
        layers = counted(one.layers, "layer")
        items.append(f"<li><b>{told(what)}</b>: {told(value)} throughout, in {layers}</li>")
    if len(items) <= MOST_CONSTANT:
        return f"<p>What does not change:</p><ul>{''.join(items)}</ul>"
    return (
        f"<details><summary>{counted(len(items), 'pair')} of statistic and tensor do not change"
        f"</summary><ul>{''.join(items)}</ul></details>"
    )


def _drawn(plots: Iterable[Plot]) -> str:
    return "".join(
        f"<figure{' class=both' if plot.narrow else ''}><figcaption>{BUTTONS}{told(plot.title)}"
        f"<small>{told(plot.caption, 500)}</small></figcaption>{plot.svg}{plot.narrow}</figure>"
        for plot in plots
    )


def _small(plots: Iterable[Plot]) -> str:
    figures = "".join(
        f"<figure>{plot.svg}<figcaption>{told(plot.caption, 200)}{BUTTONS}</figcaption></figure>"
        for plot in plots
    )
    return f"<div class=plots>{figures}</div>" if figures else ""


def short_page(figures: ReportFigures) -> str:
    """Return what a notebook shows of a run: losses, verdict, steps; without any script."""
    plots = Plots(figures)
    shown = [*plots.parts[:1], *plots.steps[:1]]
    drawn = "".join(f"<p><b>{told(plot.title)}</b></p>{plot.svg}" for plot in shown)
    # A page of its own, for the notebook's has a style that is not ours to change.
    inner = inner_page(f"{_losses(figures)}{_verdict(figures.verdict)}{drawn}", STYLE)
    # No script may measure it there, so about as high as it is in a notebook's column.
    height = 150 + 30 * inner.count("<dt>") + sum(50 + _height_of(plot.svg) for plot in shown)
    return (
        f'<iframe sandbox="" srcdoc="{_attribute(inner)}" style="width:100%;height:{height}px;'
        'border:0"></iframe>'
    )


def _height_of(svg: str) -> int:
    found = HEIGHT.search(svg)
    return int(found[1]) if found else 0


def _attribute(page: str) -> str:
    """Return a page as the value of an attribute."""
    return page.replace("&", "&amp;").replace('"', "&quot;")


def _losses(figures: ReportFigures) -> str:
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


def _verdict(found: Verdict) -> str:
    """Return what `dftrace why` says."""
    first = found.findings[0] if found.findings else None
    severity = first.severity if first else "info"
    if first is not None:
        head = heading(first) + ("" if severity == "info" else f" {sureness(first)}")
        what, who = first.what, whose(first, found)
    else:
        head = "NOTHING STANDS OUT" if found.verdict == "none" else "NO VERDICT"
        what = who = ""
    who = f"<p>{told(who.strip(), 1000)}</p>" if who else ""
    rows = "".join(
        f"<dt>{name}</dt><dd>{told(text, 1000)}</dd>" for name, text in _verdict_rows(found)
    )
    nonfinite = nonfinite_text(found)
    if nonfinite:
        nonfinite = f"<div class=lost><strong>NOT FINITE</strong> {told(nonfinite)}</div>"
    mark = MARKS.get(severity, "●") if first or found.verdict != "none" else "✓"
    return (
        f"{nonfinite}<div class='verdict {severity}' id=verdict><h3>{mark} {told(head)}</h3>"
        f"<p class=what>{told(what, 1000)}</p>{who}<dl>{rows}</dl></div>"
    )


def _verdict_rows(found: Verdict) -> Iterator[tuple[str, str]]:
    steps = found.steps
    if steps is not None:
        yield "step", step_text(steps, found)
    if found.findings:
        yield from first_rows(found.findings[0], found)
    others = [("also", other) for other in found.findings[1:MOST_FINDINGS]]
    others += [("some ranks", other) for other in found.of_some_ranks[:MOST_FINDINGS]]
    for name, other in others:
        yield name, f"{other.what}{whose(other, found)} {sureness(other)} {other.next}"
    yield from silences(found.abstained)
    if steps is not None:
        yield "judged", judged_text(steps, found)
    for note in found.notes:
        yield "note", note
    if found.unseen:
        yield "unseen", "; ".join(found.unseen)


def _slowest(figures: ReportFigures) -> str:
    """Return the slowest steps."""
    several = _several(figures)
    beside = [_beside(step) for step in figures.slowest]
    some = any(beside)
    heads = [*(["rank"] if several else []), "step", "epoch", "what it is", "most of it"]
    heads += [*(["beside it"] if some else []), "show it"]
    rows: list[list[str | Figure]] = []
    for step, told_beside in zip(figures.slowest, beside, strict=True):
        epoch = "" if step.epoch is None else str(step.epoch)
        rows.append(
            [
                *([Figure(number_of(step), step.rank)] if several else []),
                *(Figure(str(step.step), step.step), Figure(epoch, step.epoch), step.kind),
                *(_long(_most(step)), *([_long(told_beside)] if some else [])),
                *(f"<code>--at {step.at}</code>", Figure(time_text(step.ns), step.ns)),
            ]
        )
    where = told(" ".join(figures.paths), 300)
    how = f"<p class=faint>Opened around a step: <code>dftrace view {where} --at ...</code></p>"
    return table("slowest", [*heads, "time"], rows, 1, sorts=True) + how


def _beside(step: SlowStepFigures) -> str:
    tensor = step.nonfinite_tensor
    return told(beside_text(step.rss_bytes, step.device_bytes, step.nonfinite, tensor))


def _long(words: str) -> str:
    """Return a cell that a telephone does not make a column of single words of."""
    return f"<div class=long>{words}</div>"


def _most(step: SlowStepFigures) -> str:
    whole = max(step.ns, 1)
    found = sorted(step.parts.items(), key=lambda part: -part[1])[:PARTS_TOLD]
    return ", ".join(
        # A share and its sign are not torn apart.
        f"{part_name(part)} {percent(ns / whole)}".replace(" %", "&nbsp;%")
        for part, ns in found
        if ns >= LEAST_PART * whole
    )


def _ranks(figures: ReportFigures) -> str:
    """Return the ranks beside each other, where there are several; those that are odd first."""
    if len(figures.ranks) < 2:
        return ""
    heads = ["rank", "host", "workers", "steps", "own time", "median", "p95", "longest", "waits"]
    ordered = sorted(figures.ranks, key=lambda one: (not one.odd, -one.own_ns, one.rank))
    rows: list[list[str | Figure]] = [
        [
            Figure(
                f"<b class=odd-rank>▸ {number_of(one)}</b>" if one.odd else number_of(one), one.rank
            ),
            told(one.host),
            Figure(f"{one.workers_at_once:,}", one.workers_at_once),
            Figure(f"{one.steps:,}", one.steps),
            *(Figure(time_text(ns), ns) for ns in (one.own_ns, one.p50_ns, one.p95_ns, one.max_ns)),
            *(Figure(percent(share), share) for share in (one.wait_share, one.comm_share)),
        ]
        for one in ordered[:MOST_TABLE_ROWS]
    ]
    more = len(figures.ranks) - len(rows) + figures.ranks_left_out
    shown = table("ranks", [*heads, "comm"], rows, 8, sorts=True) + _more(
        more, "rank", "whose own time is shorter; dftrace ranks --by rank --all"
    )
    shown += "<p class=faint>Own time is the median step without communication.</p>"
    return _folded(shown, len(rows), "rank")


def _folded(shown: str, rows: int, noun: str) -> str:
    """Return a table, which is closed at first where it is long."""
    if rows <= MOST_OPEN_ROWS:
        return shown
    return f"<details><summary>A table of {counted(rows, noun)}</summary>{shown}</details>"


def _names(figures: ReportFigures) -> str:
    """Return the names whose spans have most self time."""
    summary = figures.summary
    rows: list[list[str | Figure]] = []
    for row in summary.spans[:MOST_NAMES]:
        sign = swatch(of_span(row.cat, row.name or ""))
        body = " <span class=faint>(body of the loop)</span>" if row.loop == "body" else ""
        times = (row.total_us, row.self_us, row.mean_us, row.p50_us, row.p99_us, row.max_us)
        rows.append(
            [
                *(sign + told(row.cat), told(row.name or "") + body),
                Figure(f"{row.count:,}", row.count),
                *(Figure("-" if us is None else time_text(us * 1000), us) for us in times),
                Figure("-" if row.share is None else f"{row.share:.1%}", row.share),
            ]
        )
    if not rows:
        return "<p>There are no finished spans.</p>"
    heads = ["category", "name", "count", "total", "self", "mean", "p50", "p99", "max", "share"]
    left = len(summary.spans) - len(rows) + summary.rows_left_out + summary.names_left_out
    share = "<p class=faint>By self time; share is self, of the time that their processes went.</p>"
    return (
        table("names", heads, rows, 8, sorts=True)
        + share
        + _more(left, "name", "dftrace summary has all")
    )


def _more(count: int, noun: str, where: str = "") -> str:
    if count <= 0:
        return ""
    return f"<p class=faint>{counted(count, noun)} more{f', {where}' if where else ''}.</p>"


def _stopped(found: TensorFigures) -> str:
    """Return when tensors stopped being finite, where any did."""
    if not found.stopped:
        return ""
    rows: list[list[str | Figure]] = [
        [
            *(told(mark.layer), told(mark.tensor), told(mark.process)),
            f"<code>--at {mark.at}</code>",
            *(Figure(_said(n), n) for n in (mark.iteration, mark.n_nan, mark.n_inf)),
        ]
        for mark in found.stopped
    ]
    heads = ["layer", "tensor", "process", "show it", "iteration", "NaN", "infinite"]
    title = "<p><b>When tensors stopped being finite</b></p>"
    return (
        title
        + table("stopped", heads, rows, 3, sorts=True)
        + _more(found.stopped_left_out, "moment")
    )


def _facts(figures: ReportFigures) -> str:
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
            for at, one in enumerate(processes[:MOST_TABLE_ROWS])
        ]
        own = table("processes", ["process", *rest], lines, sorts=True)
        more = len(processes) - len(lines) + figures.processes_left_out
        own += _more(more, "process", "by their order; dftrace info --all")
        own = _folded(own, len(lines), "process")
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


def _files(figures: ReportFigures) -> str:
    """Return the files that were read, with how each ended and what it lost."""
    rows: list[list[str | Figure]] = [
        [
            _long(told(file.path, 300)),
            told(file.ended or ("closed" if file.closed else "not closed")),
            told(", ".join(f"{name} {count:,}" for name, count in file.losses.items()) or "-"),
            Figure("-" if file.events is None else f"{file.events:,}", file.events),
        ]
        for file in sorted(figures.summary.files, key=soundness)[:MOST_TABLE_ROWS]
    ]
    more = len(figures.summary.files) - len(rows)
    heads = ["file", "ended by", "counted losses", "events"]
    return table("files", heads, rows, 1, sorts=True) + _more(
        more, "file", "or more that ended and lost nothing; dftrace info --all"
    )
