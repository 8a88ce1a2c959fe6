"""How times, shares, bytes and parts of a step are written, and a verdict in fifteen lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.reach import local_text
from dftrace_ai.trace_format.running import told_of
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.why.model import Finding, Kind, SlowStep, StepFacts, Verdict

NAMES: Final = {
    "wait": "loader wait",
    "data": "data work in the loop",
    "transfer": "copies to the device",
    "comm": "communication",
    "compute": "other computation",
    "gpu": "GPU",
    "launch": "launching kernels",
    "other": "other spans",
    "none": "not annotated",
}
BYTES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
ARGUMENT_LETTERS: Final = 60
"""So many letters of a name or an argument are shown."""

# Narrower intervals are told to a tenth of a percent.
NARROW: Final = 0.02

# Of the lines on a verdict.
MOST_LINES: Final = 15
LEAST_PART: Final = 0.02
MOST_RANKS: Final = 8
MOST_PARTS, MOST_BESIDE, MOST_NOTES = 6, 3, 2
BURSTS: Final = 1.1
MOSTLY_STEPS: Final = 0.8
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


def part_name(part: str) -> str:
    """Return what people are told of a part of a step."""
    return NAMES.get(part, part)


def time_text(ns: float) -> str:
    """Return nanoseconds in the unit that fits: ``20.9 ms``."""
    for size, unit in UNITS:
        if ns >= size:
            value = ns / size
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{ns:.0f} ns"


def bytes_text(count: float) -> str:
    """Return bytes in the unit that fits: ``1.21 GB``."""
    for size, unit in BYTES:
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


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


def few(ranks: Iterable[int]) -> str:
    """Return the numbers of ranks, the first of many: ``0, 1, 2 and 61 more``."""
    ordered = sorted(ranks)
    more = len(ordered) - MOST_RANKS
    return ", ".join(map(str, ordered[:MOST_RANKS])) + (f" and {more:,} more" if more > 0 else "")


def percent(share: float) -> str:
    """Return a share as people read it: ``20 %``."""
    return f"{100 * share:,.0f} %"


def share_text(share: float, low: float, high: float) -> str:
    """Return a share with its interval; alone where it is counted and not estimated."""
    if low == high:
        return percent(share)
    digits = 0 if high - low >= NARROW else 1
    told, *ends = (f"{100 * number:,.{digits}f}" for number in (share, low, high))
    return f"{told} % ({' to '.join(ends)} %)"


def sureness(finding: Finding) -> str:
    """Return severity and confidence of a finding, as they stand behind it in parentheses."""
    return f"({finding.severity}, {finding.confidence} confidence)"


def verdict_lines(verdict: Verdict) -> list[str]:
    r"""Return what `dftrace why` prints.

    Args:
        verdict: of a run.

    Example::

        print(*verdict_lines(why(["out/"])), sep="\n")
    """
    head = list(_head(verdict))
    body = [f"  {name:<10}{text}" for name, text in _rows(verdict)]
    # What the verdict stands on comes last, and is not cut off.
    tail = [line for line in body if line.split()[0] in {"run", "judged", "unseen", "note"}]
    rest = [line for line in body if line not in tail]
    room = MOST_LINES - len(head) - len(tail)
    return [*head, *rest[: max(room, 0)], *tail]


def nonfinite_text(verdict: Verdict) -> str:
    """Return which tensor was the first that is not finite; empty where none is told."""
    mark = verdict.nonfinite
    if mark is None:
        return ""
    step = "" if mark.step is None else f", in step {mark.step}"
    rank = f" of rank {mark.rank}" if verdict.ranks > 1 else ""
    more = f"; {mark.marks - 1:,} more after it" if mark.marks > 1 else ""
    at = f"--at {mark.at_us / 1e6:.3f}s"
    tensor = shortened(mark.tensor, ARGUMENT_LETTERS)
    return f"{tensor}{rank} is the first tensor that is not finite{step} ({at}){more}."


def _head(verdict: Verdict) -> Iterator[str]:
    if nonfinite := nonfinite_text(verdict):
        yield from ("NOT FINITE", nonfinite, "")
    if not verdict.findings:
        some = " ON MOST RANKS" if verdict.of_some_ranks else ""
        yield f"NOTHING STANDS OUT{some}" if verdict.verdict == "none" else "NO VERDICT"
        return
    first = verdict.findings[0]
    yield first.kind.upper() + ("" if first.severity == "info" else f"  {sureness(first)}")
    yield f"{first.what}{whose(first, verdict)}"
    yield ""


def whose(finding: Finding, verdict: Verdict) -> str:
    """Return on which ranks a finding is, and of which of them its figures are; empty for one."""
    if verdict.ranks < 2:
        return ""
    figures = f" The figures are of rank {finding.rank}." if len(finding.ranks) > 1 else ""
    if len(finding.ranks) == verdict.ranks:
        return f" On all {verdict.ranks} ranks.{figures}"
    return f" On {len(finding.ranks)} of {verdict.ranks} ranks: {few(finding.ranks)}.{figures}"


def _rows(verdict: Verdict) -> Iterator[tuple[str, str]]:
    steps = verdict.steps
    if steps is not None:
        yield "step", step_text(steps, verdict)
    if verdict.findings:
        yield from first_rows(verdict.findings[0], verdict)
    # What only some ranks do is what the others may wait for, and is not cut off.
    for other in (*verdict.of_some_ranks[:MOST_BESIDE], *verdict.findings[1 : 1 + MOST_BESIDE]):
        yield "also", f"{other.what}{whose(other, verdict)} {sureness(other)}"
    if verdict.slowest:
        yield "slowest", ", ".join(_slow_step(step) for step in verdict.slowest)
    yield from silences(verdict)
    for running in told_of(verdict.running):
        yield "note", running
    for note in verdict.notes[:MOST_NOTES]:
        yield "note", note
    more = len(verdict.notes) - MOST_NOTES
    if more > 0:
        yield "note", f"{counted(more, 'more note')}; --json has all"
    if verdict.length_ns is not None:
        began = "" if verdict.began_at is None else f"began {local_text(verdict.began_at)}, "
        yield "run", f"{began}lasted {time_text(verdict.length_ns)}"
    if steps is not None:
        yield "judged", judged_text(steps, verdict)
    if verdict.unseen:
        yield "unseen", "; ".join(verdict.unseen)


def silences(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield what is not said, and why; of the run, why there is no verdict."""
    for one in verdict.abstained:
        yield ("because", one.why) if one.what == "run" else ("silent", f"{one.what}: {one.why}")


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
    yield "do next", finding.next
    # As fast as what they wait for may be no rank.
    if finding.late_ranks:
        return
    if finding.kind in SHARES_OF_STEPS and finding.cause != "start-up" and finding.share < 1:
        times = 1 / (1 - finding.share)
        # Where steps are not all of the training, it is not the training.
        what = "a step " if finding.cost < MOSTLY_STEPS * finding.share else ""
        yield "at best", f"{what}{times:.2g} times as fast, with all of it gone"


def _slow_step(step: SlowStep) -> str:
    # As `dftrace view --at` takes it.
    at = f"--at {step.at_us / 1e6:.3f}s+{step.ns / 1e6:.1f}ms"
    beside = beside_text(step.rss_bytes, step.device_bytes, step.nonfinite, step.nonfinite_tensor)
    return f"step {step.step} ({at}{f'; {beside}' if beside else ''})"


def judged_text(steps: StepFacts, verdict: Verdict) -> str:
    """Return which steps were judged, how they were found, and whose are shown."""
    each = f", {steps.accumulation} micro-batches each" if steps.accumulation > 1 else ""
    of_rank = f", shown of rank {verdict.rank}" if verdict.ranks > 1 else ""
    steady = counted(steps.steady, "steady step")
    return f"{steady} of {steps.count:,}, by {steps.found_by}{each}{of_rank}"
