"""What of traces is served, and how it is shown: whose, in which order, under which names."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.summary.adding import add_traces
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.merging.processes import ShownProcess
    from dftrace_ai.analysis.reading.trace import Trace

# A UI that takes commands by its address, and puts processes with more spans first. Later ones go
# by what stands in the trace, earlier ones take no commands.
BY_COMMANDS: Final = "v52."

# So many processes a person looks through.
MOST_PROCESSES: Final = 256

# The track on which tensor inspection puts it.
FIRST_NONFINITE: Final = "first non-finite value"

WORKSPACE: Final = "By rank"
SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")

CATEGORY: Final = "tensor_stats"
MOST_NAMES: Final = 100_000
MOST_DIGITS: Final = 9
NUMBER: Final = re.compile(r"(\d+)", re.ASCII)


def orders_by_commands(ui: Path) -> bool:
    """Return whether the offline UI of a directory takes commands, and needs them for the order."""
    # It has a folder for its version.
    return any(folder.name.startswith(BY_COMMANDS) for folder in ui.iterdir())


def ordering_commands(processes: Sequence[ShownProcess]) -> str:
    """Return commands that have a Perfetto UI show processes in this order, as JSON."""
    # They make a workspace in the order of the processes, unfold the first one, and pin the track
    # of the first value that is not finite above all others. Empty where no process is known.
    if not processes:
        return ""
    # As the UI calls the tracks of processes.
    names = [SPECIAL.sub(r"\\\g<0>", f"{one.name} {one.pid}") for one in processes]
    commands = []
    if 2 <= len(names) <= MOST_PROCESSES:
        commands += [
            _command("CopyTracksToWorkspaceByRegex", f"^{name}$", WORKSPACE) for name in names
        ]
        commands.append(_command("SwitchWorkspace", WORKSPACE))
    commands.append(_command("ExpandTracksByRegex", f"^{names[0]}$"))
    commands.append(_command("PinTracksByRegex", f"^{FIRST_NONFINITE}( |$)"))
    return json.dumps(commands, ensure_ascii=False)


def _command(name: str, *args: str) -> dict[str, str | tuple[str, ...]]:
    return {"id": f"dev.perfetto.{name}", "args": args}


def tensor_names(traces: Sequence[Trace]) -> dict[str, str]:
    """Return what the counters of tensors in traces are shown as, by their names."""
    # A viewer orders tracks by their letters.
    try:
        ours = [trace for trace in traces if trace.header and trace.header.run]
        totals = add_traces(ours).totals
        totals.spans(0)  # puts together what its threads have read
        others, _ = totals.others(MOST_NAMES)
    except TraceError:
        return {}  # who reads it for the viewer tells
    return shown_names(name for ph, cat, name, _ in others if (ph, cat) == ("i", CATEGORY))


def shown_names(names: Iterable[str]) -> dict[str, str]:
    """Return names by which layers are in their natural order: ``layers.09 / weight /``."""
    # Those given are ``LAYER:TENSOR``; others stay as they are. Behind them the viewer writes the
    # statistic.
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
