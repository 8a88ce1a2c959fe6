"""What counters of tensors are called in a viewer, which orders tracks by their letters."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.summary.adding import add_traces
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["shown_names", "tensor_names"]

CATEGORY: Final = "tensor_stats"
MOST_NAMES: Final = 100_000
MOST_DIGITS: Final = 9
NUMBER: Final = re.compile(r"(\d+)", re.ASCII)


def tensor_names(traces: Sequence[Trace]) -> dict[str, str]:
    """Return what the counters of tensors in traces are shown as, by their names.

    Args:
        traces: those of other recorders have none.
    """
    if find_spec("dftrace_ai._reader") is None:
        return {}  # without it reading takes longer than looking for a layer
    try:
        ours = [trace for trace in traces if trace.header and trace.header.run]
        totals = add_traces(ours).totals
        totals.spans(0)  # puts together what its threads have read
        others, _ = totals.others(MOST_NAMES)
    except TraceError:
        return {}  # who reads it for the viewer tells
    return shown_names(name for ph, cat, name, _ in others if (ph, cat) == ("i", CATEGORY))


def shown_names(names: Iterable[str]) -> dict[str, str]:
    """Return names under which layers stand together and in their natural order.

    Behind them the viewer writes the statistic.

    Args:
        names: ``LAYER:TENSOR``; others stay as they are.

    Example::

        shown = shown_names(["layers.9:weight", "layers.10:weight"])
        assert shown["layers.9:weight"] == "layers.09 / weight /"
    """
    parts = {name: name.rpartition(":") for name in names}
    layers = {name: NUMBER.split(layer) for name, (layer, _, _) in parts.items() if layer}
    # Of names that differ in their numbers alone, the digits of the longest at each place.
    digits: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for pieces in layers.values():
        lengths = [len(number) for number in pieces[1::2]]
        known = digits[tuple(pieces[::2])]
        known[:] = [max(pair) for pair in zip(known or lengths, lengths, strict=True)]
    shown = {}
    for name, pieces in layers.items():
        widths = digits[tuple(pieces[::2])]
        padded = list(pieces)
        padded[1::2] = [
            number.zfill(min(width, MOST_DIGITS))
            for number, width in zip(pieces[1::2], widths, strict=True)
        ]
        shown[name] = f"{''.join(padded)} / {parts[name][2]} /"
    # Two that would be called the same stay apart.
    return shown if len(set(shown.values())) == len(shown) else {}
