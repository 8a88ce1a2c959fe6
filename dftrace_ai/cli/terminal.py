"""How the commands write: tables to a terminal of any width, and names that cannot act on it."""

from __future__ import annotations

import json
import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dftrace_ai.wording import escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

__all__ = [
    "complain",
    "console",
    "figures_table",
    "prepare_streams",
    "print_all",
    "shown",
    "time_text",
    "write_json",
    "write_out",
]

# A pipe or file has no width; wide enough that nothing is folded or cut.
PIPE_WIDTH = 200

# Characters of one message, and of one name in a table.
MESSAGE_LETTERS = 2000
NAME_LETTERS = 200


def shown(text: object, letters: int = MESSAGE_LETTERS) -> str:
    r"""Return a text that somebody else chose so that it can only be read.

    Names come from traces, markers and paths. A terminal obeys what it finds in them:
    escape sequences, line breaks, marks that turn the direction of writing.

    Args:
        text: the name or message.
        letters: what is longer than this ends in an ellipsis.

    Returns:
        One line, with escapes such as ``\x1b`` and ``\u202e`` in place of what acts.

    Example::

        assert shown("a\x1b[2Jb") == "a\\x1b[2Jb"
    """
    return escaped(shortened(str(text), letters))


def prepare_streams() -> None:
    """Let letters that the terminal's encoding lacks come out escaped, and no pipe be coloured."""
    # Help and wrong calls are printed by typer, which would heed it.
    os.environ.pop("FORCE_COLOR", None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def complain(message: object, *, loud: bool = False) -> None:
    """Write one line to the standard error stream, as the command's own words."""
    style = "bold red" if loud else "yellow"
    console(stderr=True).print(f"dftrace: {shown(message)}", style=style, soft_wrap=True)


def write_json(value: Any) -> None:
    """Write a value to the standard output stream as JSON, exactly, whatever the encoding."""
    import orjson

    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str)
    except TypeError:
        # A path that is not UTF-8 has halves of surrogates, which only escapes can carry.
        text = json.dumps(value, indent=2, default=str).encode("ascii")
    typer.echo(text)


def console(*, stderr: bool = False) -> Console:
    """Return a console that never folds or colours what goes to a pipe, or into a notebook."""
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
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def time_text(micros: float) -> str:
    """Return microseconds as people read them: ``time_text(1_838_200) == "1.84 s"``."""
    for unit, size in (("ns", 1e-3), ("us", 1.0), ("ms", 1e3)):
        value = float(f"{micros / size:.3g}")
        if value < 1000:
            return f"{value:g} {unit}"
    seconds = micros / 1e6
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"


def write_out(text: str) -> None:
    """Write text, all at once; to nobody where the reader has seen enough.

    Raises:
        OSError: it cannot be written.
    """
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
