"""Findings in sentences: what it is, what shows it, what to try next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from dftrace_ai.analysis.why.evidence import Evidence
    from dftrace_ai.analysis.why.model import Finding
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = [
    "beside_text",
    "bytes_text",
    "in_words",
    "part_name",
    "percent",
    "share_text",
    "sureness",
    "time_text",
]

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
# Narrower intervals are told to a tenth of a percent.
NARROW: Final = 0.02


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
    """Return what lies beside a step, such as ``1.21 GB, fc:output not finite``; empty for nothing.

    Args:
        rss_bytes: memory of the process; None where it is not known.
        device_bytes: memory on its GPUs; None where it is not known.
        nonfinite: how many tensors stopped being finite in it.
        tensor: the first of these.
    """
    told = [] if rss_bytes is None else [bytes_text(rss_bytes)]
    told += [] if device_bytes is None else [f"{bytes_text(device_bytes)} on the GPU"]
    if nonfinite:
        more = f" and {nonfinite - 1:,} more" if nonfinite > 1 else ""
        told.append(f"{shortened(tensor or '', ARGUMENT_LETTERS)}{more} not finite")
    return ", ".join(told)


def percent(share: float) -> str:
    """Return a share as people read it: ``20 %``."""
    return f"{100 * share:,.0f} %"


def share_text(share: float, low: float, high: float) -> str:
    """Return a share with its interval; alone where it is counted and not estimated.

    Args:
        share: the share.
        low: the lower end of the interval.
        high: the upper end.

    Example::

        assert share_text(0.2, 0.184, 0.22) == "20 % (18 to 22 %)"
        assert share_text(0.2, 0.198, 0.203) == "20.0 % (19.8 to 20.3 %)"
        assert share_text(0.2, 0.2, 0.2) == "20 %"
    """
    if low == high:
        return percent(share)
    digits = 0 if high - low >= NARROW else 1
    told, *ends = (f"{100 * number:,.{digits}f}" for number in (share, low, high))
    return f"{told} % ({' to '.join(ends)} %)"


def sureness(finding: Finding) -> str:
    """Return severity and confidence of a finding, as they stand behind it in parentheses."""
    return f"({finding.severity}, {finding.confidence} confidence)"


def in_words(finding: Finding, evidence: Evidence) -> Finding:
    """Return the finding with its sentences.

    Args:
        finding: what was found.
        evidence: of a rank for which it was.
    """
    what = _what(finding, evidence)
    if evidence.is_short:
        seen = counted(len(evidence.steady), "step")
        what = f"It looks {finding.kind}: only {seen} were seen. {what}"
    return replace(finding, what=what, because=_because(finding), next=_next(finding))


def _where(finding: Finding) -> str:
    if finding.cause == "none":
        return "in time that is in no span"
    return f"in {part_name(finding.cause)}"


def _what(finding: Finding, evidence: Evidence) -> str:
    told = finding.evidence
    share = share_text(finding.share, finding.low, finding.high)
    times = told.get("times", 0)
    if finding.kind == "input-bound" and finding.cause == "start-up":
        return (
            f"{share} of the training goes to starting the loader's workers, {told['loops']} times."
        )
    if finding.kind == "slow-step":
        count = len(told["steps"])
        several = f"{count} of {len(evidence.steps):,} steps cost"
        one = f"One of {len(evidence.steps):,} steps costs"
        return f"{one if count == 1 else several} {share} of the training, {_where(finding)}."
    sentences = {
        "input-bound": f"Steps wait for data for {share} of their time.",
        "communication-bound": f"{share} of a step is communication that no computation hides.",
        "transfer-bound": f"{share} of a step is copying to the device that no computation hides.",
        "checkpoint-bound": f"{share} of the training is saving, {times} checkpoints.",
        "optimizer-heavy": f"The optimizer takes {share} of a step.",
        "other-heavy": f"{share} of a step is other work: neither data, nor computation, nor "
        "communication.",
        "evaluation-heavy": f"{share} of the run is evaluation, {times} times.",
        "start-up-heavy": f"{share} of the run passes before the second step.",
        "slow-warm-up": f"The first {told.get('steps')} steps cost {share} of the training more "
        f"than later ones, {_where(finding)}.",
        "periodic": f"Every {_ordinal(told.get('every', 0))} step takes "
        f"{time_text(told.get('extra_ns', 0))} longer, {_where(finding)}: {share} of the training.",
        "slower-and-slower": f"Steps get slower all the time, by {share} over the run, "
        f"{_where(finding)}.",
        "slower-since": f"From step {told.get('step')} on a step takes {share} longer, "
        f"{_where(finding)}.",
        "memory-creep": f"{finding.cause} grows by {told.get('bytes_a_second', 0) / 1e6:.3g} MB/s, "
        f"{told.get('grown_bytes', 0) / 1e6:,.0f} MB so far.",
        "not-annotated": f"{share} of a step is in no span.",
        "host-bound": f"The GPU has nothing to do for {share} of a step, and it is not data that "
        "it waits for.",
        "compute-bound": f"{share} of a step is forward, backward and optimizer. Nothing that is "
        "annotated is in their way.",
    }
    return sentences[finding.kind]


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _because(finding: Finding) -> str:
    told = finding.evidence
    sentences = []
    if "thread_busy" in told:
        sentences.append(
            "Another thread of the program iterates the loader, and fetches "
            f"{percent(told['thread_busy'])} of the time."
        )
    if finding.kind == "input-bound":
        sentences.append(_because_of_input(finding.cause, told))
    if also := told.get("also"):
        name = also["cause"] or "unknown"
        share = share_text(also["share"], also["low"], also["high"])
        of = "the training" if also["share_of"] == "training" else "a step"
        sure = f"{also['confidence']} confidence"
        sentences.append(f"Beside it: {name}, {share} of {of} ({sure}).")
    if told.get("untold_evaluation"):
        sentences.append("It may be an evaluation without ai.pipeline.evaluate.")
    if others := told.get("ranks_unseen"):
        sentences.append(
            f"Waiting for {counted(others, 'other rank')} may be part of it: no communication is "
            "annotated."
        )
    if shares := told.get("shares"):
        first, last = map(percent, shares)
        sentences.append(f"It was {first} of the first steps and is {last} of the last.")
    if span := told.get("span"):
        where = f"{shortened(span['name'], ARGUMENT_LETTERS)}, {time_text(span['ns'])}"
        sentences.append(f"The longest span there is {where}.")
    if finding.kind == "other-heavy":
        sentences.append(f"Most of it: {'; '.join(map(_other_span, told['spans']))}.")
    if finding.kind == "not-annotated" and told.get("lacking"):
        sentences.append(f"These are not annotated: {', '.join(told['lacking'])}.")
    if finding.kind == "memory-creep" and told.get("full_in_s") is not None:
        hours = told["full_in_s"] / 3600
        sentences.append(f"At that rate the host's memory is full in {hours:,.1f} hours.")
    return " ".join(sentence for sentence in sentences if sentence)


def _other_span(span: JsonObject) -> str:
    name = shortened(f"{span['cat']} {span['name']}", ARGUMENT_LETTERS)
    return f"{name}, {percent(span['share'])} of a step"


def _because_of_input(cause: str, told: JsonObject) -> str:
    if cause == "slow-item":
        usual, longest = time_text(told["median_ns"]), time_text(told["longest_ns"])
        named = [_item(item) for item in told["longest"] if item["args"]]
        which = f" The longest: {'; '.join(named)}." if named else ""
        return f"{counted(told['items'], 'item')} took up to {longest}, the median {usual}.{which}"
    if "busy" in told:
        work, rest = time_text(told["batch_ns"]), time_text(told["rest_ns"])
        workers = counted(told["workers"], "worker")
        verb = "is" if told["workers"] == 1 else "are"
        share = percent(told["busy"])
        busy = f"{workers} {verb} {share} busy. A batch is {work} of their work; "
        each = " for each" if told["batches_a_step"] > 1 else ""
        busy += f"the median step without the wait takes {rest}{each}."
        more = {
            "collate": " Most of it is collating.",
            "disk": " Most of it is reading files.",
            "idle-workers": f" Each batch costs the loop {time_text(told['take_over_ns'])} to "
            "take over.",
        }
        return busy + more.get(cause, "")
    return {
        "inline": "Items are loaded in the training process itself.",
        "collate": "Most of the loading is collating, in the training process itself.",
        "disk": "Most of the loading is reading files, in the training process itself.",
    }.get(cause, "")


def _item(item: JsonObject) -> str:
    args = ", ".join(f"{name}={value}" for name, value in item["args"].items())
    return f"{shortened(args, ARGUMENT_LETTERS)} ({time_text(item['ns'])})"


def _next(finding: Finding) -> str:
    if finding.kind == "input-bound":
        return _next_of_input(finding.cause, finding.evidence)
    if finding.evidence.get("ranks_unseen"):
        return "Annotate communication (ai.comm) in it first; then try fused=True or foreach=True."
    if finding.kind == "not-annotated" and finding.evidence.get("lacking"):
        return f"Annotate {', '.join(finding.evidence['lacking'])}."
    return {
        "communication-bound": "See which rank comes last, in the trace; overlap, larger buckets, "
        "fewer synchronisations.",
        "transfer-bound": "Use pin_memory=True and non_blocking=True; copy the next batch during "
        "this one.",
        "checkpoint-bound": "Save less often, or asynchronously "
        "(torch.distributed.checkpoint.async_save).",
        "optimizer-heavy": "Try fused=True or foreach=True, and look for work inside of the step.",
        "other-heavy": "Do it less often, or on another thread; annotate what is a part of the "
        "training below ai.compute or ai.data.",
        "evaluation-heavy": "Evaluate less often, on a part, without gradients, with larger "
        "batches.",
        "start-up-heavy": "Cache what is prepared; a longer run pays it once.",
        "slow-warm-up": "Compilation, autotuning, first allocations: cache them, fix the shapes.",
        "slow-step": "Open it: dftrace view --at, with the time below.",
        "periodic": "Look for what your program does at that rhythm: logging, saving, clearing "
        "caches.",
        "slower-and-slower": "Look for lists that grow, graphs that are kept (loss without "
        ".item()), hooks added twice.",
        "slower-since": "Open that step; look for another job on the machine, or other data.",
        "memory-creep": "Look for tensors that are kept: losses without .item(), lists of outputs, "
        "caches without a limit.",
        "not-annotated": "Annotate what lies between; look for .item(), logging, conversions.",
        "host-bound": "Try torch.compile, CUDA graphs, larger batches; look for .item() and Python "
        "in the loop.",
        "compute-bound": "torch.profiler shows the kernels; try mixed precision, torch.compile.",
    }[finding.kind]


def _next_of_input(cause: str, told: JsonObject) -> str:
    if cause == "workers":
        needed, cores, ranks = told["needed"], told["cores"], told["ranks_of_host"]
        if cores is None:
            return f"{needed} workers would keep up: set num_workers={needed}."
        host = f"the host has {counted(cores, 'core')}"
        host += f" for {ranks} ranks" if ranks > 1 else ""
        if needed * ranks <= cores:
            return f"{needed} workers would keep up, {host}: set num_workers={needed}."
        return f"{needed} workers would keep up, and {host}: make an item cheaper first."
    if cause == "idle-workers":
        processes, cores = told["ranks_of_host"] * (1 + told["workers"]), told["cores"]
        hand_over = "Look at pin_memory and the collate function; send fewer and larger tensors."
        if cores is None or processes <= cores:
            return hand_over
        shared = f"{processes} ranks and workers share {counted(cores, 'core')}"
        return f"{shared}: try fewer workers, or more cores. {hand_over}"
    return {
        "inline": "Set num_workers in the DataLoader, or hold the data in memory.",
        "collate": "Make the collate function cheaper: stack once, pad less, do it on the device.",
        "disk": "Read larger files in order, cache them on a local disk, or add workers.",
        "slow-item": "Look at these items; cut or cache them, or "
        f"{'raise prefetch_factor' if told.get('workers') else 'set num_workers'}.",
        "start-up": "Set persistent_workers=True, or make epochs longer.",
    }.get(cause, "Annotate __getitem__ with ai.data.item to learn what the loader does.")
