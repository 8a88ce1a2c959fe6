"""Findings in sentences, by their kind: what it is, what shows it, what to try next.

Apart from `verdict`, which chooses what is told: here is how.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.ranks.partials import GARBAGE
from dftrace_ai.analysis.ranks.words import UNNAMED, excess_text
from dftrace_ai.analysis.texts import (
    ARGUMENT_LETTERS,
    part_name,
    percent,
    share_text,
    time_text,
)
from dftrace_ai.analysis.why import model as told_by
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dftrace_ai.analysis.ranks.model import Finding as RankFinding
    from dftrace_ai.analysis.robust_statistics import BatchSums
    from dftrace_ai.analysis.why.judging import JudgedSteps
    from dftrace_ai.analysis.why.model import (
        Drift,
        Finding,
        Input,
        Kind,
        SlowItem,
        SpanShare,
    )

UNTOLD_EVALUATION: Final = "It may be an evaluation without ai.pipeline.evaluate."
MACHINE: Final = (
    "That is rather the machine than a part of the program: look for other jobs, its clock, its "
    "temperature; or for batches that got larger."
)

# Where another thread communicates for so much of the time in no span the loop waits for it.
MOSTLY_BESIDE: Final = 0.5
NEXT_OF_GARBAGE: Final = "Call gc.freeze() after setting up; collect less often, between steps."


class _Sentences(NamedTuple):
    """What it is, what to try next, and what shows it."""

    what: str
    next: str
    because: str = ""


class _Said(NamedTuple):
    """What sentences say, whatever the kind: the share with its interval, and of which steps."""

    share: str
    steps: int
    sums: BatchSums


def in_words(finding: Finding, steps: JudgedSteps) -> Finding:
    """Return the finding with its sentences; the steps are those of the rank that it is of."""
    share = share_text(finding.share, finding.low, finding.high)
    said = SENTENCES[finding.kind](finding, _Said(share, steps.facts.count, steps.sums))
    what = said.what
    if steps.is_short:
        seen = counted(steps.facts.steady, "step")
        what = f"It looks {finding.kind}: only {seen} were seen. {what}"
    return replace(finding, what=what, because=said.because, next=said.next)


def because_of(late: RankFinding, waits_ns: float) -> str:
    """Return what shows that ranks are late, and how long the others usually wait in a step."""
    excess = late.evidence.excess
    told = f"{excess_text(excess)}. " if excess and late.ranks else ""
    # Spans stand as people wrote them.
    if told and excess[0].name in UNNAMED:
        told = told[0].upper() + told[1:]
    who = "The others wait" if late.ranks else "Ranks wait"
    return f"{told}{who} {time_text(waits_ns)} a step."


def _by_share(what: str, following: str) -> Callable[[Finding, _Said], _Sentences]:
    """Return the sentences of a kind of which there is nothing to say but the share."""
    return lambda _, said: _Sentences(what.format(share=said.share), following)


def _checkpoints(finding: Finding, said: _Said) -> _Sentences:
    times = told_by.figures_of(finding, told_by.Checkpoints)["times"]
    return _Sentences(
        f"{said.share} of the training is saving, {times} checkpoints.",
        "Save less often, or asynchronously (torch.distributed.checkpoint.async_save).",
    )


def _other(finding: Finding, said: _Said) -> _Sentences:
    of = told_by.figures_of(finding, told_by.Others)["spans"]
    spans = _spans(of, "a step")
    if of and f"{of[0]['cat']}/{of[0]['name']}" == GARBAGE:
        return _Sentences(
            f"{said.share} of a step is other work, most of it collecting Python's garbage.",
            NEXT_OF_GARBAGE,
            f"Of it: {spans}.",
        )
    return _Sentences(
        f"{said.share} of a step is other work: neither data, nor computation, nor communication.",
        "Do it less often, or on another thread; annotate what is a part of the training below "
        "ai.compute or ai.data.",
        f"Most of it: {spans}." if spans else "",
    )


def _slower_and_slower(finding: Finding, said: _Said) -> _Sentences:
    drift = told_by.figures_of(finding, told_by.Drift)
    return _Sentences(
        f"Steps get slower all the time, by {said.share} over the run, {_grown(drift)}.",
        MACHINE
        if drift["alike"]
        else "Look for lists that grow, graphs that are kept (loss without .item()), hooks added "
        "twice.",
        _first_and_last(drift),
    )


def _slower_since(finding: Finding, said: _Said) -> _Sentences:
    since = told_by.figures_of(finding, told_by.DriftSince)
    return _Sentences(
        f"From about step {since['step']} on a step takes {said.share} longer, {_grown(since)}.",
        MACHINE
        if since["alike"]
        else "Open the steps there; look for another job on the machine, or other data.",
        _first_and_last(since),
    )


def _warm_up(finding: Finding, said: _Said) -> _Sentences:
    steps = told_by.figures_of(finding, told_by.WarmUp)["steps"]
    return _Sentences(
        f"The first {steps} steps cost {said.share} of the training more than later ones, "
        f"{_where(finding.cause)}.",
        NEXT_OF_WARM_UP.get(
            finding.cause, "Compilation, autotuning, first allocations: cache them, fix the shapes."
        ),
    )


def _where(*parts: str) -> str:
    if parts == ("none",):
        return "in time that is in no span"
    *first, last = (part_name(part) for part in parts)
    return f"in {', '.join(first)} and {last}" if first else f"in {last}"


def _spans(spans: Iterable[SpanShare], of: str) -> str:
    named = ((shortened(f"{s['cat']} {s['name']}", ARGUMENT_LETTERS), s["share"]) for s in spans)
    return "; ".join(f"{name}, {percent(share)} of {of}" for name, share in named)


def _communication(_: Finding, said: _Said) -> _Sentences:
    return _Sentences(
        f"{said.share} of a step is communication that no computation hides.",
        "dftrace ranks tells who comes last and how fast links are; overlap, larger buckets, fewer "
        "synchronisations; in a pipeline more microbatches.",
    )


def _optimizer(finding: Finding, said: _Said) -> _Sentences:
    others = told_by.figures_of(finding, told_by.Optimizer)["ranks_unseen"]
    what = f"The optimizer takes {said.share} of a step."
    if not others:
        return _Sentences(
            what, "Try fused=True or foreach=True, and look for work inside of the step."
        )
    return _Sentences(
        what,
        "Annotate communication (ai.comm) in it first; then try fused=True or foreach=True.",
        f"Waiting for {counted(others, 'other rank')} may be part of it: no communication is "
        "annotated.",
    )


def _periodic(finding: Finding, said: _Said) -> _Sentences:
    rhythm = told_by.figures_of(finding, told_by.Rhythm)
    longer = f"Every {_ordinal(rhythm['every'])} step takes {time_text(rhythm['extra_ns'])} longer"
    if rhythm["garbage"]:
        return _Sentences(
            f"{longer}, most of it collecting Python's garbage: {said.share} of the training.",
            NEXT_OF_GARBAGE,
        )
    return _Sentences(
        f"{longer}, {_where(finding.cause)}: {said.share} of the training.",
        "Look for what your program does at that rhythm: logging, saving, clearing caches.",
        UNTOLD_EVALUATION if rhythm["untold_evaluation"] else "",
    )


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _grown(drift: Drift) -> str:
    return "in all parts alike" if drift["alike"] else _where(*drift["parts"])


def _first_and_last(drift: Drift) -> str:
    if drift["alike"]:
        return ""
    first, last = map(percent, drift["shares"])
    return f"It was {first} of the first steps and is {last} of the last."


def _two_kinds(finding: Finding, said: _Said) -> _Sentences:
    kinds = told_by.figures_of(finding, told_by.TwoKinds)
    fast, slow = time_text(kinds["fast_ns"]), time_text(kinds["slow_ns"])
    return _Sentences(
        f"Steps are of two kinds: {percent(kinds['slow_share'])} take {slow} and the others "
        f"{fast}, {_where(finding.cause)}: {said.share} of their time.",
        "Look for what differs: lengths of the data, branches of the program, compiling again.",
    )


def _evaluation(finding: Finding, said: _Said) -> _Sentences:
    told = told_by.figures_of(finding, told_by.Evaluations)
    by_mode = (
        "Told by forward passes between steps in evaluation mode or without gradients: it is not "
        "annotated, and has no loader."
    )
    return _Sentences(
        f"{said.share} of the run is evaluation, {told['times']} times.",
        "Evaluate less often, on a part, without gradients, with larger batches.",
        by_mode if told["by_mode"] else "",
    )


def _loop_start(finding: Finding, said: _Said) -> _Sentences:
    told = told_by.figures_of(finding, told_by.LoopStart)
    steps, times = told["steps"], f"{told['times']:.2g} times"
    first = (
        f"The first {steps} steps of a loop take"
        if steps > 1
        else ("The first step of a loop takes")
    )
    return _Sentences(
        f"{first} {times} as long as others, {_where(finding.cause)}, in {told['loops']} loops: "
        f"{said.share} of the training.",
        "Look for what each pass begins anew: caches that were cleared, buffers, other shapes, "
        "compiling again.",
    )


def _slow_step(finding: Finding, said: _Said) -> _Sentences:
    told = told_by.figures_of(finding, told_by.SlowSteps)
    number, span = len(told["steps"]), told["span"]
    several, one = f"{number} of {said.steps:,} steps cost", f"One of {said.steps:,} steps costs"
    because = [UNTOLD_EVALUATION] if told["untold_evaluation"] else []
    if span:
        where = f"{shortened(span['name'], ARGUMENT_LETTERS)}, {time_text(span['ns'])}"
        because.append(f"The longest span there is {where}.")
    return _Sentences(
        f"{one if number == 1 else several} {said.share} of the training, {_where(finding.cause)}.",
        "Open it: dftrace view --at, with the time below.",
        " ".join(because),
    )


def _between(finding: Finding, said: _Said) -> _Sentences:
    told = told_by.figures_of(finding, told_by.Between)
    between = "epochs, or other loops" if finding.cause == "loops" else "steps"
    how_often = "behind nearly each of them" if told["each"] else counted(told["times"], "time")
    because = ["It is in no span."]
    if told["spans"]:
        spans = _spans(told["spans"], "the training")
        because = [f"What is in spans there: {spans}."]
    if told["untold_evaluation"]:
        because.append(UNTOLD_EVALUATION)
    if told["workers_unseen"]:
        because.append("Workers of a loader without persistent_workers=True end and start there.")
    return _Sentences(
        f"{said.share} of the training lies between {between}, {how_often}, and nothing there is "
        "annotated as evaluation, saving or loading.",
        "Look at what the program does there, and annotate it: ai.pipeline.evaluate, "
        "ai.checkpoint.capture, ai.other.log.",
        " ".join(because),
    )


def _memory(finding: Finding, _: _Said) -> _Sentences:
    told = told_by.figures_of(finding, told_by.Memory)
    because = ""
    if (full_in_s := told["full_in_s"]) is not None:
        hours = full_in_s / 3600
        because = f"At that rate the host's memory is full in {hours:,.1f} hours."
    return _Sentences(
        f"{finding.cause} grows by {told['bytes_a_second'] / 1e6:.3g} MB/s, "
        f"{told['grown_bytes'] / 1e6:,.0f} MB so far.",
        "Look for tensors that are kept: losses without .item(), lists of outputs, caches without "
        "a limit.",
        because,
    )


def _not_annotated(finding: Finding, said: _Said) -> _Sentences:
    told = told_by.figures_of(finding, told_by.NotAnnotated)
    what = f"{said.share} of a step is in no span."
    if bursts := told["bursts"]:
        what = (
            f"{said.share} of the steps' time is in no span, most of it in {bursts:,} of "
            f"{said.steps:,} steps."
        )
    share, largest = max((said.sums.share(part).share, part) for part in said.sums.parts)
    if largest != "none" and share > finding.share:
        what += f" More of it is {part_name(largest)}, {percent(share)}."
    if told["beside_comm"] >= MOSTLY_BESIDE:
        return _Sentences(
            what,
            "Look at what the loop waits for there (Thread.join, a queue, a future); dftrace ranks "
            "tells who comes last.",
            f"In {percent(told['beside_comm'])} of that time another thread of the program "
            "communicates.",
        )
    if lacking := ", ".join(told["lacking"]):
        return _Sentences(what, f"Annotate {lacking}.", f"These are not annotated: {lacking}.")
    if told["by_auto"]:
        return _Sentences(
            what,
            "Look for .item(), logging, conversions and callbacks at every step; larger batches "
            "hide what a framework does for each.",
            "All that auto records is there: the rest is Python of the loop, or of the framework "
            "that runs it.",
        )
    return _Sentences(what, "Annotate what lies between; look for .item(), logging, conversions.")


def _input(finding: Finding, said: _Said) -> _Sentences:
    told, cause = told_by.figures_of(finding, told_by.Input), finding.cause
    because = []
    if (busy := told.get("thread_busy")) is not None:
        because.append(
            "Another thread of the program iterates the loader, and fetches "
            f"{percent(busy)} of the time."
        )
    because.append(_because_of_input(cause, told))
    if also := told.get("also"):
        of = "the training" if also["share_of"] == "training" else "a step"
        beside = share_text(also["share"], also["low"], also["high"])
        sure = f"{also['confidence']} confidence"
        because.append(f"Beside it: {also['cause'] or 'unknown'}, {beside} of {of} ({sure}).")
    what = f"Steps wait for data for {said.share} of their time."
    if cause == told_by.START_UP:
        by = (
            "starting the loader's workers"
            if told["by_workers"]
            else ("the beginnings of passes over the loader")
        )
        what = f"{said.share} of the training goes to {by}, {counted(told['loops'], 'time')}."
    return _Sentences(what, _next_of_input(cause, told), " ".join(filter(None, because)))


def _because_of_input(cause: str, told: Input) -> str:
    if cause == "slow-item":
        usual, longest = time_text(told["median_ns"]), time_text(told["longest_ns"])
        named = [_item(item) for item in told["longest"] if item["args"]]
        which = f" The longest: {'; '.join(named)}." if named else ""
        return f"{counted(told['items'], 'item')} took up to {longest}, the median {usual}.{which}"
    if cause == told_by.START_UP:
        first = f"What leads to a first batch takes {time_text(told['first_batch_ns'])} longer."
        started, passes = told["workers_started"], f"{told['passes']:,} passes"
        if not started:
            return f"No workers were started. {first}"
        return f"Workers were started for {started} of {passes}. {first}"
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


def _item(item: SlowItem) -> str:
    args = ", ".join(f"{name}={value}" for name, value in item["args"].items())
    return f"{shortened(args, ARGUMENT_LETTERS)} ({time_text(item['ns'])})"


def _next_of_workers(told: Input) -> str:
    needed, cores, ranks = told["needed"], told["cores"], told["ranks_of_host"]
    if cores is None:
        return f"{needed} workers would keep up: set num_workers={needed}."
    host = f"the host has {counted(cores, 'core')}"
    host += f" for {ranks} ranks" if ranks > 1 else ""
    if needed * ranks <= cores:
        return f"{needed} workers would keep up, {host}: set num_workers={needed}."
    return f"{needed} workers would keep up, and {host}: make an item cheaper first."


def _next_of_input(cause: str, told: Input) -> str:
    if cause == "workers":
        return _next_of_workers(told)
    if cause == "idle-workers":
        processes, cores = told["ranks_of_host"] * (1 + told["workers"]), told["cores"]
        hand_over = "Look at pin_memory and the collate function; send fewer and larger tensors."
        if cores is None or processes <= cores:
            return hand_over
        shared = f"{processes} ranks and workers share {counted(cores, 'core')}"
        return f"{shared}: try fewer workers, or more cores. {hand_over}"
    if cause == "slow-item":
        more = "raise prefetch_factor" if told["workers"] else "set num_workers"
        return f"Look at these items; cut or cache them, or {more}."
    if cause == told_by.START_UP:
        persist = "Set persistent_workers=True, or make epochs longer."
        return persist if told["by_workers"] else BEGINS_ANEW
    if not cause and told["items_told"]:
        return ITEMS_DIFFER if "busy" in told else ELSEWHERE_IN_LOADER
    return NEXT_OF_INPUT.get(
        cause, "Annotate __getitem__ with ai.data.item to learn what the loader does."
    )


OF_LOADING: Final = (
    "Look at what the loader does first: workers that start, queues that fill, files that no cache "
    "has yet, a sampler that prepares."
)
NEXT_OF_WARM_UP: Final = {
    "wait": OF_LOADING,
    "data": OF_LOADING,
    "transfer": "Look at the first copies: pinned memory that is allocated, contexts of devices.",
    "comm": "Look at which rank comes last at first: connections are made, and ranks begin apart.",
    "checkpoint": "Save later, or asynchronously (torch.distributed.checkpoint.async_save).",
    "none": "Annotate what the first steps do: compiling, imports, caches that fill.",
}

NEXT_OF_INPUT: Final = {
    "inline": "Set num_workers in the DataLoader, or hold the data in memory.",
    "collate": "Make the collate function cheaper: stack once, pad less, do it on the device.",
    "disk": "Read larger files in order, cache them on a local disk, or add workers.",
}
ITEMS_DIFFER: Final = (
    "Items differ, or wait for each other: raise prefetch_factor, try another worker, make an item "
    "cheaper."
)
ELSEWHERE_IN_LOADER: Final = (
    "Items are less than half of it: look at the sampler, the collate function, pin_memory, and "
    "what else the loader does."
)
BEGINS_ANEW: Final = (
    "Look at what begins a pass: the sampler, __iter__ of the dataset, files it opens; prepare it "
    "once, or make epochs longer."
)

SENTENCES: Final[Mapping[Kind, Callable[[Finding, _Said], _Sentences]]] = {
    "input-bound": _input,
    "communication-bound": _communication,
    "transfer-bound": _by_share(
        "{share} of a step is copying to the device that no computation hides.",
        "Use pin_memory=True and non_blocking=True; copy the next batch during this one.",
    ),
    "checkpoint-bound": _checkpoints,
    "optimizer-heavy": _optimizer,
    "other-heavy": _other,
    "periodic": _periodic,
    "slower-and-slower": _slower_and_slower,
    "slower-since": _slower_since,
    "two-kinds": _two_kinds,
    "evaluation-heavy": _evaluation,
    "start-up-heavy": _by_share(
        "{share} of the run passes before the second step.",
        "Cache what is prepared; a longer run pays it once.",
    ),
    "slow-warm-up": _warm_up,
    "slow-loop-start": _loop_start,
    "slow-step": _slow_step,
    "between-steps": _between,
    "memory-creep": _memory,
    "host-bound": _by_share(
        "The GPU has nothing to do for {share} of a step, and it is not data that it waits for.",
        "Try torch.compile, CUDA graphs, larger batches; look for .item() and Python in the loop.",
    ),
    "not-annotated": _not_annotated,
    "compute-bound": _by_share(
        "{share} of a step is forward, backward and optimizer. Nothing that is annotated is "
        "in their way.",
        "torch.profiler shows the kernels; try mixed precision, torch.compile.",
    ),
}
