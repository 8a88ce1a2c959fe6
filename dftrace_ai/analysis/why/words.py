"""A verdict in fifteen lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from dftrace_ai.analysis.ranks.words import NOTABLE, once_text, title
from dftrace_ai.analysis.reading.reach import local_text
from dftrace_ai.analysis.reading.stack_lines import UNREAD
from dftrace_ai.analysis.texts import (
    ARGUMENT_LETTERS,
    bytes_text,
    few,
    in_lines,
    lasted_text,
    note_rows,
    part_name,
    percent,
    time_text,
)
from dftrace_ai.analysis.thresholds import silences, sureness
from dftrace_ai.analysis.why.late_ranks import WHOM
from dftrace_ai.analysis.why.model import START_UP, Lateness, figures_of
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.ranks.model import Kind as RankKind
    from dftrace_ai.analysis.why.model import Finding, Kind, SlowStep, StepFacts, Verdict

NO_SAMPLES: Final = (
    "the traces hold no samples of Python's stacks, which tell lines: record with the setting "
    "lines_hz, such as DFTRACE_LINES_HZ=20"
)
# Of the lines on a verdict.
LEAST_PART: Final = 0.02
MOST_PARTS, MOST_BESIDE = 6, 3
BURSTS: Final = 1.1
MOSTLY_STEPS: Final = 0.8
# Shares of ranks that differ by so much are told.
FAR_APART: Final = 0.1
SHARES_OF_STEPS: Final[frozenset[Kind]] = frozenset(
    {
        "input-bound",
        "communication-bound",
        "transfer-bound",
        "optimizer-heavy",
        "other-heavy",
        "host-bound",
    }
)


def beside_text(
    rss_bytes: int | None, device_bytes: int | None, nonfinite: int, tensor: str | None
) -> str:
    """Return what lies beside a step: ``1.21 GB, fc:output not finite``; empty for nothing."""
    told = [] if rss_bytes is None else [bytes_text(rss_bytes)]
    told += [] if device_bytes is None else [f"{bytes_text(device_bytes)} on the GPU"]
    if nonfinite:
        more = f" and {nonfinite - 1:,} more" if nonfinite > 1 else ""
        told.append(f"{shortened(tensor or '', ARGUMENT_LETTERS)}{more} not finite")
    return ", ".join(told)


def verdict_lines(verdict: Verdict) -> list[str]:
    r"""Return what `dftrace why` prints.

    Args:
        verdict: of a run.

    Example::

        print(*verdict_lines(why(["out/"])), sep="\n")
    """
    lines = []
    for title_, sentence in verdict_heads(verdict):
        lines += [title_, sentence, ""] if sentence else [title_]
    return in_lines(lines, verdict_rows(verdict))


def nonfinite_text(verdict: Verdict) -> str:
    """Return which tensor was the first that is not finite; empty where none is told."""
    mark = verdict.nonfinite
    if mark is None:
        return ""
    step = "" if mark.step is None else f", in step {mark.step}"
    rank = f" of rank {mark.rank}" if verdict.ranks > 1 and mark.rank is not None else ""
    more = f"; {mark.marks - 1:,} more after it" if mark.marks > 1 else ""
    at = f"--at {mark.at_us / 1e6:.3f}s"
    tensor = shortened(mark.tensor, ARGUMENT_LETTERS)
    return f"{tensor}{rank} is the first tensor that is not finite{step} ({at}){more}."


def verdict_heads(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield what stands above a verdict: titles, each with its sentence, which may be empty."""
    if nonfinite := nonfinite_text(verdict):
        yield "NOT FINITE", nonfinite
    if not verdict.findings:
        some = " ON MOST RANKS" if verdict.of_some_ranks else ""
        more = " ELSE" if verdict.of_plugins else ""
        yield f"NOTHING{more} STANDS OUT{some}" if verdict.verdict == "none" else "NO VERDICT", ""
        return
    first = verdict.findings[0]
    sure = "" if first.severity == "info" else f"  {sureness(first)}"
    yield f"{heading(first)}{sure}", f"{first.what}{whose(first, verdict)}"


def heading(finding: Finding) -> str:
    """Return what stands above a finding: its kind, of ranks what `dftrace ranks` calls it."""
    if finding.kind != "late-rank":
        return finding.kind.upper()
    figures = figures_of(finding, Lateness)
    among = figures["hosts"] or figures["stages"] or finding.ranks
    return title(cast("RankKind", finding.cause), len(among), figures["since"])


def whose(finding: Finding, verdict: Verdict) -> str:
    """Return on which ranks a finding is, and of which of them its figures are; empty for one."""
    if verdict.ranks < 2 or verdict.rank is None or finding.kind == "late-rank":
        return ""
    figures = f" The figures are of rank {finding.rank}." if len(finding.ranks) > 1 else ""
    shares = range_text(finding)
    if len(finding.ranks) == verdict.ranks:
        return f" On all {verdict.ranks} ranks{shares}.{figures}"
    which = few(finding.ranks)
    return f" On {len(finding.ranks)} of {verdict.ranks} ranks{shares}: {which}.{figures}"


def range_text(finding: Finding) -> str:
    """Return which shares its ranks have, where they are far apart: ``, from 12 to 92 %``."""
    least, most = finding.of_ranks or (0.0, 0.0)
    if finding.share_of == "growth" or most - least < FAR_APART:
        return ""
    return f", from {percent(least).removesuffix(' %')} to {percent(most)}"


def verdict_rows(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield what stands below: the name of a row, and its text."""
    steps = verdict.steps
    if steps is not None:
        yield "step", step_text(steps, verdict)
    if verdict.findings:
        yield from first_rows(verdict.findings[0], verdict)
    for one in verdict.of_plugins[:MOST_BESIDE]:
        told = " ".join(filter(None, (one.what, one.because, one.next)))
        yield "plug-in", f"{told} {sureness(one)} by {one.name} of {one.package}"
    if len(verdict.of_plugins) > MOST_BESIDE:
        more = counted(len(verdict.of_plugins) - MOST_BESIDE, "more finding")
        yield "plug-in", f"{more}; --json has all"
    # What only some ranks do is what the others may wait for, and is not cut off.
    for other in (*verdict.of_some_ranks[:MOST_BESIDE], *verdict.findings[1 : 1 + MOST_BESIDE]):
        yield "also", f"{other.what}{whose(other, verdict)} {sureness(other)}"
        # Of two causes each is told with what it costs and what to do, if both are sure: of who is
        # late in no span it is unsure in what, but for the line that says it.
        is_told = other.kind == "late-rank" and any(line.text for line in other.lines)
        is_sure = other.severity != "info" and (other.confidence != "low" or is_told)
        if is_sure and other in verdict.findings[1:2]:
            yield from first_rows(other, verdict)
        else:
            yield from line_rows(other)
    if verdict.slowest:
        yield "slowest", ", ".join(_slow_step(step) for step in verdict.slowest)
    yield from silences(verdict.abstained)
    yield from note_rows(verdict.running, verdict.notes)
    if verdict.length_ns is not None:
        began = "" if verdict.began_at is None else f"began {local_text(verdict.began_at)}, "
        yield "run", began + lasted_text(verdict.length_ns)
    if steps is not None:
        yield "judged", judged_text(steps, verdict)
    if verdict.unseen:
        yield "unseen", "; ".join(verdict.unseen)


def step_text(steps: StepFacts, verdict: Verdict) -> str:
    """Return how long a step takes, the mean first where steps come in bursts, and its parts."""
    length = time_text(steps.median_ns)
    if steps.mean_ns > BURSTS * steps.median_ns:
        length = f"{time_text(steps.mean_ns)}, median {length}"
    return f"{length}: {_parts(verdict)}"


def _parts(verdict: Verdict) -> str:
    shares = sorted(((time.share, part) for part, time in verdict.parts.items()), reverse=True)
    shown = [(share, part) for share, part in shares if share >= LEAST_PART][:MOST_PARTS]
    return ", ".join(f"{part_name(part)} {percent(share)}" for share, part in shown)


def first_rows(finding: Finding, verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield what shows a finding, what to do next, and what a step would take at best."""
    if finding.because:
        yield "because", finding.because
    yield from line_rows(finding)
    yield "do next", finding.next
    if finding.kind == "late-rank":
        figures = figures_of(finding, Lateness)
        if (times := figures["without"]) >= NOTABLE:
            then = once_text(figures["beside_ranks"], turns=figures["beside_turns"])
            unsure = [f"; but {one.why}" for one in verdict.abstained if one.what == WHOM]
            yield "at best", f"{times:.3g} times as fast, without it{then}{''.join(unsure)}"
    if finding.kind in SHARES_OF_STEPS and finding.cause != START_UP and finding.share < 1:
        times = 1 / (1 - finding.share)
        # Where steps are not all of the training, it is not the training.
        what = "a step " if finding.cost < MOSTLY_STEPS * finding.share else ""
        yield "at best", f"{what}{times:.2g} times as fast, with all of it gone"


def line_rows(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield the line of the program that carries a finding, where one does."""
    yield from (("because", line.text) for line in finding.lines if line.text)


def phase_lines(verdict: Verdict) -> list[str]:
    """Return the lines that carry the parts of the steps, or why none is named, one a phase."""
    texts = phase_texts(verdict)
    return [f"  {'lines':<10}{text}" for text in texts] if verdict.lines else texts


def phase_texts(verdict: Verdict) -> list[str]:
    """Return the same as sentences."""
    if not verdict.lines:
        unjudged = [
            f"no lines are told: {one.why}" for one in verdict.abstained if one.what == "run"
        ]
        return unjudged or [n for n in verdict.notes if n.endswith(UNREAD)] or [NO_SAMPLES]
    return [line.text or f"{line.phase}: {line.silence}" for line in verdict.lines]


def _slow_step(step: SlowStep) -> str:
    # As `dftrace view --at` takes it.
    at = f"--at {step.at_us / 1e6:.3f}s+{step.ns / 1e6:.1f}ms"
    beside = beside_text(step.rss_bytes, step.device_bytes, step.nonfinite, step.nonfinite_tensor)
    return f"step {step.step} ({at}{f'; {beside}' if beside else ''})"


def judged_text(steps: StepFacts, verdict: Verdict) -> str:
    """Return which steps were judged, how they were found, and whose are shown."""
    each = f", {steps.accumulation} micro-batches each" if steps.accumulation > 1 else ""
    is_told = verdict.ranks > 1 and verdict.rank is not None
    of_rank = f", shown of rank {verdict.rank}" if is_told else ""
    steady = counted(steps.steady, "steady step")
    return f"{steady} of {steps.count:,}, by {steps.found_by}{each}{of_rank}"
