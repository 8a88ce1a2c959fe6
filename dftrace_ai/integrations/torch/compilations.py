"""The part `compilations`: what torch.compile makes, how long it takes, why it is made again."""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import asked
from dftrace_ai.integrations.swapping import NotInThisVersion, Swaps
from dftrace_ai.run.emitting import complete, is_recording, time_us
from dftrace_ai.run.late_import import when_imported
from dftrace_ai.wording import escaped, shortened, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.integrations.options import AutoOptions

COMPILER = "torch._dynamo"

REASON_LETTERS = 500
"""So much of a reason is recorded; torch puts whole tables of guards into some."""


def install(options: AutoOptions) -> Callable[[], None]:
    """Record each compilation once it is over, by torch's figures; the compiler is not loaded."""
    swaps = Swaps()

    def watch() -> None:
        make = functools.partial(_recorded, options)
        try:
            swaps.swap(sys.modules[f"{COMPILER}.utils"], "log_compilation_event", make)
        except (KeyError, NotInThisVersion) as error:
            warn("auto records no compilations, this version of torch lacks %s", error)

    swaps.then(when_imported(COMPILER, watch))
    return swaps.restore


def _recorded(options: AutoOptions, original: Callable[[Any], None]) -> Callable[[Any], None]:
    gate = options.gate

    @functools.wraps(original)
    def recorded(metrics: Any) -> None:
        if gate.recording and is_recording() and ai.compute.compile.enabled:
            asked(_record, metrics)
        original(metrics)

    return recorded


def _record(metrics: Any) -> None:
    took_us = _duration_us(metrics)
    if took_us is None:
        return
    node = ai.compute.compile
    # By its length and not by its times: these are of another clock than the trace's.
    start_us = time_us() - took_us
    complete(
        node.name, start_us, took_us, {**node._copy_args(), **_facts(metrics)}, category=node.cat
    )


def _duration_us(metrics: Any) -> int | None:
    start, end = (getattr(metrics, name, None) for name in ("start_time_us", "end_time_us"))
    if isinstance(start, int) and isinstance(end, int):
        return max(end - start, 0)
    # Before torch 2.6, and of one that has failed its beginning alone.
    took_s = getattr(metrics, "entire_frame_compile_time_s", None)
    if took_s is None and isinstance(began_s := getattr(metrics, "start_time", None), float):
        took_s = max(time.time() - began_s, 0.0)
    return None if took_s is None else int(took_s * 1e6)


def _facts(metrics: Any) -> dict[str, int | str]:
    """What is known of a compilation; of a backward pass torch does not say whose."""

    def known(name: str) -> Any:
        return getattr(metrics, name, None)

    facts: dict[str, int | str | None] = {
        "function": known("co_name"),
        "file": known("co_filename") and f"{known('co_filename')}:{known('co_firstlineno')}",
        "compile_id": known("compile_id") and str(known("compile_id")),
        "backward": True if known("is_forward") is False else None,
        "nodes": known("graph_node_count"),
        "reason": _brief(known("recompile_reason")),
        "failed": _class_name(known("fail_type")),
        "why": _brief(known("fail_reason")),
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _class_name(said: Any) -> str | None:
    """Return the name of a class of which some versions of torch say more."""
    return None if said is None else str(said).strip("<>'").rpartition(".")[2]


def _brief(text: Any) -> str | None:
    return None if text is None else shortened(escaped(str(text).strip()), REASON_LETTERS)
