"""What of traces is served, and how it is shown: whose, in which order, under which names."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.merged_trace import gzip_member
from dftrace_ai.analysis.reading.given_lines import lines_near
from dftrace_ai.analysis.reading.time_window import TimeWindow
from dftrace_ai.analysis.summary.adding import add_traces
from dftrace_ai.analysis.track_order import NamedTracks
from dftrace_ai.errors import DftraceError, TraceError, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.merged_trace import ShownProcess
    from dftrace_ai.analysis.reading.trace import Trace

RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)

# So many ranks no job has; whoever names more has mistyped.
MOST_RANKS: Final = 1_000_000

# A UI that takes commands by its address, and puts processes with more spans first. Later ones go
# by what stands in the trace, earlier ones take no commands.
BY_COMMANDS: Final = "v52."

# So many processes a person looks through.
MOST_PROCESSES: Final = 256

# The track on which tensor inspection puts it.
FIRST_NONFINITE: Final = "first non-finite value"

WORKSPACE: Final = "By rank"
SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")

PIECE_BYTES: Final = 1024 * 1024

CATEGORY: Final = "tensor_stats"
MOST_NAMES: Final = 100_000
MOST_DIGITS: Final = 9
NUMBER: Final = re.compile(r"(\d+)", re.ASCII)


def parsed_ranks(text: str) -> tuple[range, ...]:
    """Return the ranks that a text such as ``0,4-7`` names."""
    ranges = []
    for part in text.replace(" ", "").split(","):
        match = RANGE.fullmatch(part)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if not int(first) <= int(last) < MOST_RANKS:
            raise DftraceError(f"{text!r} names no ranks; what is meant looks like 0,4-7")
        ranges.append(range(int(first), int(last) + 1))
    return tuple(ranges)


def of_ranks(traces: Iterable[Trace], wanted: Sequence[range]) -> tuple[Trace, ...]:
    """Return the traces of these ranks, in the order of the ranks."""
    # Processes that a rank has started, as the workers of its loader are, bear its number.
    ranks = [(trace, trace.header.rank if trace.header else None) for trace in traces]
    known = [(trace, rank) for trace, rank in ranks if rank is not None]
    chosen = [(rank, trace) for trace, rank in known if any(rank in part for part in wanted)]
    if not chosen:
        there = ", ".join(map(str, sorted({rank for _, rank in known}))) or "none is named"
        raise TraceError(f"no trace is of a rank that was asked for; there: {there}")
    return tuple(trace for _, trace in sorted(chosen, key=lambda found: found[0]))


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


class Straight:
    """The bytes of a trace as it lies on the disk, to where it ended, and a block behind them."""

    def __init__(self, trace: Trace, size: int, behind: bytes) -> None:
        self.size = size + len(behind)
        self._trace = trace
        self._behind = behind

    def __iter__(self) -> Iterator[bytes]:
        left = self.size - len(self._behind)
        with readable(self._trace), self._trace.file.opened() as raw:
            while left:
                piece = raw.read(min(left, PIECE_BYTES))
                if not piece:
                    raise TraceError(f"{self._trace}: was cut while it was sent")
                left -= len(piece)
                yield piece
        if self._behind:
            yield self._behind


def straight(
    traces: Sequence[Trace],
    window: TimeWindow | None,
    tracks: Mapping[Path, Sequence[bytes]] | None = None,
) -> Straight | None:
    """Return the bytes of a trace that can be sent as it is; None where it has to be merged."""
    # That is one whole trace of the recorder's, by gzip: its lines are read to see that each is an
    # event, and that they are as many as its closing line says. `tracks` are further lines, by the
    # trace whose process and time they are of.
    if len(traces) != 1 or window is not None:
        return None
    (trace,) = traces
    file, header, footer = trace.file, trace.header, trace.end.footer
    ours = header is not None and header.run is not None and file.framed
    if file.codec != "gzip" or file.copy or not ours or footer is None:
        return None
    with readable(trace):
        size = file.content.stat().st_size
    added = add_traces([trace])
    totals = added.totals
    whole = not (added.tears or added.skipped or added.long_lines or totals.unreadable)
    if not whole or totals.events != footer.events:
        return None
    return Straight(trace, size, _behind(trace, (tracks or {}).get(trace.path, ())))


def _behind(trace: Trace, lines: Sequence[bytes]) -> bytes:
    """Return a block with further lines and the order of the tracks, if there are several."""
    named = NamedTracks()
    # No event is before all times: what is given are lines without one.
    for line in lines_near(trace, TimeWindow(-2.0, -1.0), 0):
        named.add(line.strip().removesuffix(b","))
    for line in lines:
        if b'"ph":"M"' in line:
            named.add(line)
    behind = [*lines, *named.order()]
    return gzip_member(b"\n".join(behind) + b"\n") if behind else b""


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
