"""What a trace does not show, which every verdict has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from dftrace_ai.analysis.why.evidence import Evidence

__all__ = ["unseen_of"]


def unseen_of(evidence: Evidence) -> tuple[str, ...]:
    """Return what the traces of a rank do not show, and how to have it shown.

    Args:
        evidence: of the rank.
    """
    seen, world = evidence.signals, evidence.rank.process.world_size
    loads = evidence.has_loader
    processes = (evidence.rank.process, *evidence.rank.workers)
    dropped = sum(process.dropped for process in processes)
    unfinished = sum(process.unfinished for process in processes)
    wrapped = "wrap the loader in ai.dataloader.fetch.iter"
    some = " in many steps" if evidence.rank.process.spans.has("wait").any() else ""
    lines = {
        "the GPU (times are the host's)": not seen.gpu,
        f"the wait for data{some} ({wrapped})": loads and not seen.loader,
        "what the loader does (annotate __getitem__ with ai.data.item)": loads and not seen.data,
        "communication (ai.comm)": world > 1 and not seen.comm,
        "memory (system_counters_s)": not seen.memory,
        "evaluation, which is not told apart (ai.pipeline.evaluate)": not evidence.steps.told_apart,
        f"{counted(dropped, 'event')} that were dropped": dropped > 0,
        f"{counted(unfinished, 'span')} without an end": unfinished > 0,
    }
    return tuple(line for line, holds in lines.items() if holds)
