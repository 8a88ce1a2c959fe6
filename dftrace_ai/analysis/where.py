"""Which events are meant: ``cat = 'comm' and dur_us > 500``, held against columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.conditions import (
    MISSING,
    OPERATORS,
    Comparison,
    Condition,
    Grammar,
    Joined,
    Not,
    condition_of,
)

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers

FIELDS: Final = ("cat", "name", "rank", "host", "pid", "tid", "dur_us")
"""What is asked of an event, beside ``args.`` with the name of an argument."""

ARGS: Final = "args."

OF_EVENTS: Final = Grammar(
    option="--where",
    accepted="comparisons such as cat = 'comm', dur_us > 500, name like 'fetch%', "
    "args.step in (1, 2), joined by and, or, not and parentheses",
    names=FIELDS,
    prefix=ARGS,
)

# Smaller numbers are the same as floats.
EXACT: Final = 2**53


@dataclass(frozen=True)
class Where:
    """A condition on events, and as it was given."""

    text: str
    _condition: Condition

    def rows(self, columns: EventColumns) -> Integers:
        """Return which events of a trace meet it, as a mask."""
        return _held(self._condition, columns, np.arange(len(columns)))


def where_of(text: str) -> Where:
    """Read a condition on events: comparisons of `FIELDS` or ``args.NAME``, as `condition_of`."""
    return Where(text, condition_of(text, OF_EVENTS))


def _held(condition: Condition, columns: EventColumns, rows: Integers) -> Integers:
    """Return which of some events meet a condition."""
    if isinstance(condition, Not):
        return ~_held(condition.inner, columns, rows)
    if isinstance(condition, Joined):
        held = _held(condition.conditions[0], columns, rows)
        for further in condition.conditions[1:]:
            # It is asked only where it matters: arguments are slow to read.
            open_rows = np.flatnonzero(~held if condition.any else held)
            held[open_rows] = _held(further, columns, rows[open_rows])
        return held
    return _compared(condition, columns, rows)


def _compared(comparison: Comparison, columns: EventColumns, rows: Integers) -> Integers:
    field = comparison.name
    if field in {"cat", "name"}:
        codes, which = np.unique(columns.label[rows], return_inverse=True)
        held = [comparison.holds(getattr(columns.labels[code], field)) for code in codes.tolist()]
        return np.array(held, bool)[which]
    if field in {"rank", "host"}:
        header = columns.trace.header
        value = getattr(header, field) if header is not None else None
        return np.full(len(rows), value is not None and comparison.holds(value))
    if field.startswith(ARGS):
        name = field.removeprefix(ARGS)
        values = (columns.args(row).get(name, MISSING) for row in rows.tolist())
        return np.array([v is not MISSING and comparison.holds(v) for v in values], bool)
    column = columns.dur_ns if field == "dur_us" else getattr(columns, field)
    figures: Integers = column[rows]
    number = comparison.number
    if number and abs(number[1]) < EXACT and np.abs(figures).max(initial=0) < EXACT:
        compared, operand = number
        if field == "dur_us":
            return np.asarray((figures >= 0) & OPERATORS[compared](figures / 1000, operand))
        return np.asarray(OPERATORS[compared](figures, operand))
    # Of numbers there are few that differ: threads, processes and rounded durations.
    numbers, which = np.unique(figures, return_inverse=True)
    if field == "dur_us":
        held = [number >= 0 and comparison.holds(number / 1000) for number in numbers.tolist()]
    else:
        held = [comparison.holds(number) for number in numbers.tolist()]
    return np.array(held, bool)[which]
