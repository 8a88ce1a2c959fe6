"""How the commands write: tables to a terminal of any width, and names that cannot act on it."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from io import RawIOBase, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from dftrace_ai.errors import TraceError
from dftrace_ai.wording import escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text

# A pipe or file has no width; wide enough that nothing is folded or cut.
PIPE_WIDTH = 200

# Characters of one message, and of one name in a table.
MESSAGE_LETTERS = 2000
NAME_LETTERS = 200

# Of each table; nobody reads more, and laying out a million takes minutes. JSON has all.
MOST_ROWS = 1000

# Of these orjson escapes none, and a terminal of 8 bits takes them for escape sequences.
C1 = re.compile(r"[\x80-\x9f]")

# Who waits for longer wants to know for what.
SHOWN_AFTER_S = 2.0
LOOK_EVERY_S = 0.1
# Beyond so many times what the files have, they are read a second time.
ONCE = 1.05
# What is done, a bar, sizes and time, at their longest.
ROOM_FOR_SIZES = 80
# So much of a name is on one line before figures give way for it.
NAME_ROOM = 24
BETWEEN_COLUMNS = 3
# A column of names that has fewer letters is none.
LEAST_NAME = 10
# Of a line of a verdict that has a name: where its text begins, and from which width on the rest of
# it does so.
TEXT_AT = 12
HANGS_FROM = 36
NARROW_INDENT = "    "
# Of a verdict's head, and of what is beside it.
STYLES = {"critical": "bold red", "warning": "bold yellow", "none": "bold green"}
OTHER_STYLE = "bold"
# Letters that a text beside what it is about has at least; else it stands below that.
LEAST_TEXT = 16


def shown(text: object, letters: int = MESSAGE_LETTERS) -> str:
    """Return a text that somebody else chose so that it can only be read."""
    # Names come from traces, markers and paths. A terminal obeys what it finds in them: escape
    # sequences, line breaks, marks that turn the direction of writing. What is longer than so many
    # letters ends in an ellipsis.
    return escaped(shortened(str(text), letters))


def prepare_streams() -> None:
    """Let letters that the terminal's encoding lacks come out escaped, and no pipe be coloured."""
    # A stream that the caller has closed leads nowhere, rather than into the next file that is
    # opened.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))
    # Help and wrong calls are printed by typer, which would heed it.
    os.environ.pop("FORCE_COLOR", None)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):
            if isinstance(stream.buffer, RawIOBase):
                stream = _written_whole(stream)
                setattr(sys, name, stream)
            stream.reconfigure(errors="backslashreplace")


def _written_whole(stream: TextIOWrapper) -> TextIOWrapper:
    """Return a stream in place of one of PYTHONUNBUFFERED, which drops the rest of a write.

    To a pipe that is full a signal, as Ctrl+Z, has it end early, and that stream takes no notice.
    """
    number = os.fdopen(stream.fileno(), "wb", closefd=False)
    return TextIOWrapper(number, stream.encoding, line_buffering=True)


def complain(message: object, *, loud: bool = False) -> None:
    """Write one line to the standard error stream, as the command's own words."""
    style = "bold red" if loud else "yellow"
    console(stderr=True).print(f"dftrace: {shown(message)}", style=style, soft_wrap=True)


def open_in_browser(address: str) -> None:
    """Open an address, or say that no browser was found."""
    import webbrowser

    if not webbrowser.open(address):
        complain("no browser was found here; open the address above in yours")


def write_json(value: Any) -> None:
    """Write a value to the standard output stream as JSON, exactly, whatever the encoding."""
    import orjson

    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str)
    except TypeError:
        # A path that is not UTF-8 has halves of surrogates, which only escapes can carry.
        text = json.dumps(value, indent=2, default=_plain).encode("ascii")
    typer.echo(acting_escaped(text.decode()))


def acting_escaped(text: str) -> str:
    r"""Return JSON with escapes in place of letters that a terminal of 8 bits obeys."""
    return text if text.isascii() else C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_line(value: Any) -> str:
    """Return a value as JSON on one line, exactly, whatever the encoding."""
    import orjson

    try:
        return acting_escaped(orjson.dumps(value, default=str).decode())
    except TypeError:
        # Integers beyond 64 bits, and halves of surrogates, which only escapes can carry.
        return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def console(*, stderr: bool = False) -> Console:
    """Return a console that never folds or colours what goes to a pipe, or into a notebook."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # Not as rich finds out: the kernels of Jupyter set FORCE_COLOR for all that is run in them.
    made = Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=stream.isatty(),
        force_jupyter=False,
    )
    if not made.is_terminal:
        made.width = PIPE_WIDTH
    return made


def figures_table(title: str, texts: list[str], figures: list[str]) -> Table:
    """Return an empty table with columns of text, then columns of right-aligned figures."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def fitted_table(
    title: str,
    texts: Sequence[str],
    figures: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    spared: Sequence[str],
    width: int,
) -> tuple[RenderableType, list[str]]:
    """Return a table of rows, which have their cells by column, and the figures it has room for.

    The figures that are spared give way, in their order, to a width in letters. Where all of that
    leaves no room for names, each row is lines with all figures.
    """
    from rich.cells import cell_len

    def wide(column: str) -> int:
        return BETWEEN_COLUMNS + max(map(cell_len, (column, *(row[column] for row in rows))))

    most = NAME_ROOM + BETWEEN_COLUMNS
    room = width - 2 - sum(min(wide(text), most) for text in texts)
    kept = {figure: wide(figure) for figure in figures}
    for name in spared:
        if sum(kept.values()) <= room:
            break
        kept.pop(name, None)
    least = sum(BETWEEN_COLUMNS + min(wide(text) - BETWEEN_COLUMNS, LEAST_NAME) for text in texts)
    if rows and least + sum(kept.values()) > width - 2:
        columns = [*texts, *figures]
        lines = [[row[column] for column in columns] for row in rows]
        return _records(title, columns, lines, width), list(figures)
    table = figures_table(title, list(texts), list(kept))
    cells = [[row[column] for column in (*texts, *kept)] for row in rows]
    return with_rows(table, cells, width), list(kept)


def no_room_told(figures: Iterable[str], kept: Collection[str]) -> Iterator[str]:
    """Yield a line on the figures that a table had no room for."""
    names = ", ".join(name for name in figures if name not in kept)
    if names:
        yield f"no room for {names}; a wider terminal or --json has them"


def with_rows(table: Table, rows: Sequence[Sequence[str]], width: int) -> Table:
    """Return a table with rows in a width; all of them as one where each has room on a line."""
    from rich.cells import cell_len

    columns = list(zip(*rows, strict=True))
    heads = [str(column.header) for column in table.columns]
    wide = (max(map(cell_len, cells)) for cells in zip(heads, *rows, strict=True))
    # Rich lays out a column of a thousand lines in a third of the time of a thousand cells.
    if rows and sum(BETWEEN_COLUMNS + each for each in wide) <= width - 2:
        table.add_row(*map("\n".join, columns))
        return table
    for row in rows:
        table.add_row(*row)
    return table


def rows_told(
    names: Sequence[str],
    numbers: Sequence[bool],
    rows: Sequence[Sequence[str]],
    width: int,
    room: int = NAME_ROOM,
) -> Iterator[RenderableType]:
    """Yield a table of rows, or, where it has no room, what each has by column, line by line.

    `room`: so many letters of a text are on one line at least.
    """
    from rich.cells import cell_len

    wide = [max(map(cell_len, cells)) for cells in zip(names, *rows, strict=True)]
    least = [
        each if number else min(each, room) for each, number in zip(wide, numbers, strict=True)
    ]
    if rows and sum(BETWEEN_COLUMNS + each for each in least) > width - 2:
        yield _records("", names, rows, width)
        yield "no room for a table; a wider terminal has it"
        return
    table = figures_table("", [], [])
    for name, number in zip(names, numbers, strict=True):
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=number)
    yield with_rows(table, rows, width)


def _records(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Text:
    """Return rows as lines with the name of a column and what a row has there."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    out = Console(width=width)
    at = 2 + BETWEEN_COLUMNS + max(map(cell_len, names))
    beside = at + LEAST_TEXT <= width
    indent = " " * (at if beside else BETWEEN_COLUMNS)
    lines = [title] if title else []
    for number, row in enumerate(rows, 1):
        lines.append(f"row {number:,}")
        for name, value in zip(names, row, strict=True):
            head = f"  {name}"
            if not beside:
                lines.append(head)
            short = len(value) <= width - len(indent) and cell_len(value) <= width - len(indent)
            pieces = (
                Text(value).wrap(out, width - len(indent), overflow="fold") if not short else ()
            )
            first, *others = map(str, pieces or [value])
            begin = head + " " * (at - cell_len(head)) if beside else indent
            lines += [(begin + first).rstrip(), *((indent + other).rstrip() for other in others)]
    return Text("\n".join(lines), no_wrap=True, overflow="ignore")


def write_out(text: str) -> None:
    """Write text, all at once; to nobody where the reader has seen enough."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered has no reader any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_all(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print parts as `write_out` does: rich and click would end the program with a failure."""
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    write_out(captured.get())


def laid_out(
    lines: Iterable[str], out: Console, head: str, beside: Sequence[tuple[str, str]]
) -> Iterator[Text]:
    """Yield the lines of a verdict, as wide as there is room, with the severity in colour.

    `head` is that of what stands above, `beside` what rows called ``also`` begin with, and theirs.
    """
    from rich.text import Text

    for number, line in enumerate(lines):
        told = shown(line)
        if not line.startswith("  "):
            style = STYLES.get(head, OTHER_STYLE) if number == 0 else ""
            yield Text(told, style, overflow="fold")
            continue
        name, text = told[:TEXT_AT], told[TEXT_AT:]
        severe = (
            severity
            for what, severity in beside
            if name.strip() == "also" and line[TEXT_AT:].startswith(what)
        )
        style = STYLES.get(next(severe, ""), OTHER_STYLE)
        wide = out.width >= HANGS_FROM
        if not wide:
            yield Text(name.rstrip(), style)
        indent = " " * TEXT_AT if wide else NARROW_INDENT
        pieces = Text(text).wrap(out, out.width - len(indent), overflow="fold")
        for place, piece in enumerate(pieces):
            piece.rstrip()
            first = wide and place == 0
            yield Text.assemble((name, style) if first else indent, piece)


@contextmanager
def shown_progress(
    what: str, paths: Iterable[Path] = (), elsewhere: Callable[[], int] | None = None
) -> Iterator[None]:
    """Show a bar on the error stream's terminal from two seconds on; nothing elsewhere."""
    # The paths are what is read meanwhile; none where it is not known how much there is to do.
    # `elsewhere` tells how much of it others have read.
    if not sys.stderr.isatty() or (out := console(stderr=True)).is_dumb_terminal:
        yield
        return
    bar = Bar(what, paths, out, read=elsewhere and (lambda: _read_bytes() + elsewhere()))
    done = threading.Event()

    def watch() -> None:
        while not done.wait(LOOK_EVERY_S):
            bar.look()

    bar.look()
    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        bar.end()


class Bar:
    """A bar that appears where something takes long."""

    def __init__(
        self,
        what: str,
        paths: Iterable[Path],
        out: Console,
        *,
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[], int] | None = None,
    ) -> None:
        self._what = what
        self._paths = list(paths)
        self._out = out
        self._clock = clock
        self._read = read or _read_bytes
        self._begun = clock()
        self._read_before = self._read()
        self._total = 0
        self._progress: Progress | None = None

    def look(self) -> None:
        """Draw the bar as it is now, if it is time."""
        if self._clock() - self._begun < SHOWN_AFTER_S:
            return
        if self._progress is None:
            self._progress = self._drawn()
        done = self._read() - self._read_before
        what = self._what
        # What is needed once more is read again; headers and ends are so beside the rest.
        if self._total and done > self._total * ONCE:
            again, done = divmod(done, self._total)
            what = f"{what}, pass {again + 1}"
        done = min(done, self._total)
        self._progress.update(
            self._progress.task_ids[0], completed=done, description=what, refresh=True
        )

    def _drawn(self) -> Progress:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._total = _bytes_of(self._paths)
        # Where there is no room for all, a bar that is folded moves what stands above it.
        wide = self._out.width >= ROOM_FOR_SIZES
        sizes = [DownloadColumn()] if self._total and wide else []
        bar = BarColumn(40 if wide else 10)
        what = TextColumn("{task.description}", table_column=Column(no_wrap=True))
        columns = (what, bar, *sizes, TimeElapsedColumn())
        progress = Progress(
            *columns,
            console=self._out,
            auto_refresh=False,
            transient=True,
            get_time=self._clock,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        progress.add_task(self._what, total=self._total or None)
        progress.tasks[0].start_time = self._begun
        progress.start()
        return progress

    def end(self) -> None:
        """Take the bar away again."""
        if self._progress:
            self._progress.stop()


def _read_bytes() -> int:
    """Return how much this process has read of files; whoever read it, and by whatever call."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/io").read_bytes().split()[1])
    return 0


def _bytes_of(paths: Iterable[Path]) -> int:
    from dftrace_ai.analysis.reading.search import matching_paths
    from dftrace_ai.trace_format.file_names import PROFILE_SUFFIXES, TRACE_SUFFIXES

    total = 0
    with suppress(TraceError):
        for path in matching_paths(paths):
            places = [path] if path.is_file() else []
            for folder, _, names in os.walk(path):
                suffixes = (*TRACE_SUFFIXES, *PROFILE_SUFFIXES)
                places += [Path(folder, name) for name in names if name.endswith(suffixes)]
            for place in places:
                with suppress(OSError):
                    total += place.stat().st_size
    return total
