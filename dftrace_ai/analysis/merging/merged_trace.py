"""Several trace files as one stream that a viewer opens as one trace."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from dftrace_ai._reader import Rewriting
from dftrace_ai.analysis.merging.file_lines import Change, FileLines, Shown, Within
from dftrace_ai.analysis.merging.processes import ProcessNumbers, order_lines, processes_in_order
from dftrace_ai.analysis.merging.shown_times import ShownTimes
from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.track_order import NamedTracks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.merging.processes import ShownProcess
    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace

# So many pieces of each wait to be taken; the memory that is held does not grow with files.
MOST_WAITING: Final = 4


class MergedTrace:
    """Iterates over the bytes of one trace made of many; then it is known what was changed."""

    # Files whose time bases differ are brought to one; a process id that two processes have in
    # common, as on two hosts or in two containers, is renumbered, since a viewer would lay both on
    # one track, and so are GPUs that several files of torch.profiler have in common. Lines without
    # an event are left out, for one of them makes Perfetto refuse all; dftracer's numbers for
    # phases become the letters that it knows. Ranks are shown in their order, and below each the
    # processes that it has started; so are the tracks of a process, unless a file orders them.
    #
    # Args:
    #     files: which.
    #     window: only what touches it, and lines without a time; None for everything.
    #     tracks: further lines, by the trace whose process and time they are of.
    #     counters: what counters are shown as that are not to have their own names.
    #     times: at which times lines are shown; by default by what the files say.
    #     steps_only: files of which steps and collectives are shown alone.
    #     packed: as members of gzip, each with its facts.
    #     jobs: so many files are read side by side.
    #
    # Attributes:
    #     notes: what could not be read, a line each; known when all bytes were given.
    #     told: what was changed, likewise.
    #     lines: how many there are.
    #     marked: its head says that it is one, for it is to be a file.
    #
    # Example::
    #
    #     merged = MergedTrace(open_traces(["out/"]), packed=True)
    #     Path("all.pfw.gz").write_bytes(b"".join(merged))

    def __init__(
        self,
        files: Iterable[Trace],
        window: TimeWindow | None = None,
        tracks: Mapping[Path, Iterable[bytes]] | None = None,
        counters: Mapping[str, str] | None = None,
        *,
        times: ShownTimes | None = None,
        steps_only: Collection[Path] = (),
        packed: bool = False,
        jobs: int = 1,
    ) -> None:
        self.files = list(files)
        self.window = window
        self.tracks = tracks or {}
        self.notes: list[str] = []
        self.told: list[str] = []
        self.lines = 0
        self.marked = False
        self._shown = Shown(window, counters or {}, packed)
        self._steps_only = frozenset(steps_only)
        self._jobs = jobs
        self._owners = Owners(self.files)
        self._times = times or ShownTimes(self.files, self._owners)
        self._numbers = ProcessNumbers()

    def __iter__(self) -> Iterator[bytes]:
        self._numbers = ProcessNumbers()
        self.notes, self.told, self.lines = [], [*self._times.notes], 0
        changes = self._changes()
        parts = [self._lines_of(*each) for each in enumerate(changes)]
        pieces = [
            part.pieces(first=not number, marked=self.marked) for number, part in enumerate(parts)
        ]
        # What holds several processes is numbered as it is read.
        jobs = 1 if any(change.profile for change in changes) else self._jobs
        yield from _side_by_side(pieces, jobs)
        named = NamedTracks()
        within = Within(self.window) if self.window else None
        for part in parts:
            self.lines += part.lines
            self.notes += part.notes
            for line in part.named:
                named.add(line)
            if within and part.within:
                within.join(part.within)
        end = Rewriting(0, 0, [], None, None, True, False, self._shown.packed)
        if not parts:
            end.put(b"[", False)
        # One at a time: what orjson returns takes 4 KiB, however short it is.
        for line in chain(order_lines(self._in_order(changes)), named.order()):
            end.put(line, False)
            self.lines += 1
        if piece := end.take(True):
            yield piece
        if within and not within.count:
            self.notes.append(within.told())
        moved = sum(change.pid != change.new_pid for change in changes)
        if moved:
            noun = "process" if moved == 1 else "processes"
            self.told.append(f"pids of {moved:,} {noun} changed, since hosts share them")

    def processes(self) -> list[ShownProcess]:
        """Return the processes in their order; none where files do not say, or hold several."""
        self._numbers = ProcessNumbers()
        is_whole = all(file.header and file.header.run for file in self.files)
        return self._in_order(self._changes()) if is_whole else []

    def _in_order(self, changes: Sequence[Change]) -> list[ShownProcess]:
        shown: dict[int, int] = {}
        for file, change in zip(self.files, changes, strict=True):
            shown.setdefault(self._owners.of(file).number, change.new_pid)
        return processes_in_order(self._owners, shown)

    def _lines_of(self, number: int, change: Change) -> FileLines:
        file = self.files[number]
        return FileLines(
            file,
            change,
            self._shown,
            further=self.tracks.get(file.path, ()),
            steps_and_calls=file.path in self._steps_only,
            renumbered=partial(self._renumbered, self._owners.of(file).number),
            number=number,
        )

    def _renumbered(self, owner: int, pid: int) -> int:
        return self._numbers.of(pid, owner)

    def _changes(self) -> list[Change]:
        changes: list[Change] = []
        for file in self.files:
            header, pieces = file.header, self._times.pieces(file)
            if file.file.copy and file.file.copy.profile:
                changes.append(Change(pieces, profile=True))
            elif header is None or header.pid is None:
                changes.append(Change(pieces))
            else:
                new_pid = self._numbers.of(header.pid, self._owners.of(file).number)
                changes.append(Change(pieces, header.pid, new_pid))
        return changes


class _Part(threading.Thread):
    """Makes pieces ahead of who takes them."""

    def __init__(self, pieces: Iterator[bytes], stopped: threading.Event) -> None:
        super().__init__(daemon=True)
        self._pieces = pieces
        self._stopped = stopped
        self._made: queue.Queue[bytes | BaseException | None] = queue.Queue(MOST_WAITING)

    def run(self) -> None:
        end: BaseException | None = None
        try:
            for piece in self._pieces:
                self._made.put(piece)
                if self._stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - for who takes them
            end = error
        self._made.put(end)

    def taken(self) -> Iterator[bytes]:
        """Yield the pieces; raises what making them raised."""
        while (piece := self._made.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    def let_go(self) -> None:
        """Make room for what it waits to put, until it has ended."""
        while self.is_alive():
            with suppress(queue.Empty):
                self._made.get_nowait()
            self.join(0.01)


def _side_by_side(parts: Sequence[Iterator[bytes]], jobs: int) -> Iterator[bytes]:
    if jobs < 2 or len(parts) < 2:
        for part in parts:
            yield from part
        return
    stopped = threading.Event()
    waiting = iter(parts)
    begun: list[_Part] = []

    def begin() -> None:
        if (pieces := next(waiting, None)) is not None:
            begun.append(_Part(pieces, stopped))
            begun[-1].start()

    try:
        for _ in range(jobs):
            begin()
        while begun:
            yield from begun[0].taken()
            begun.pop(0).join()
            begin()
    finally:
        stopped.set()
        for each in begun:
            each.let_go()
