"""What PyTorch's profiler has found, as spans of the trace."""

from __future__ import annotations

from typing import Any

from dftrace_ai.run.emitting import complete, is_recording


def trace_handler(profiler_result: Any) -> None:
    """Record the events of a ``torch.profiler.profile`` as spans of the category ``PP``.

    They lie on tracks of their own, ``torch CPU`` and so on, at the times at which they were.

    Args:
        profiler_result: what PyTorch hands to ``on_trace_ready``.

    Example::

        with torch.profiler.profile(on_trace_ready=trace_handler):
            train()
    """
    if not is_recording():
        return
    results = getattr(getattr(profiler_result, "profiler", None), "kineto_results", None)
    begin_us = results.trace_start_ns() // 1000 if results is not None else 0
    for event in profiler_result.events():
        device = getattr(event.device_type, "name", str(event.device_type))
        complete(
            event.key,
            begin_us + round(event.time_range.start),
            round(event.time_range.elapsed_us()),
            {
                "device": int(event.device_type),
                "cpu_memory": event.cpu_memory_usage,
                "device_memory_usage": event.device_memory_usage,
                "is_remote": int(event.is_remote),
                "input_size": sum(map(len, event.input_shapes or ())),
                "thread": event.thread,
            },
            category="PP",
            track=f"torch {device}",
        )
