"""What counters of memory and processors said of a process, as columns: many are written alike."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.reading.argument_members import ARGUMENTS
from dftrace_ai.analysis.reading.event_columns import decoded
from dftrace_ai.analysis.steps.calls import OF_FILE, OF_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers
    from dftrace_ai.trace_format.json_types import Json


MOST: Final = 2.0**60
"""Nothing that is counted has more."""


@dataclass(frozen=True, repr=False)
class Samples:
    """The samples of counters, by time where they are of a whole process."""

    at_ns: Integers  # when each was taken
    name: Integers  # place in `names`
    value: Integers  # place in `values`
    names: tuple[str, ...]  # of counters that have some
    values: tuple[Mapping[str, Json], ...]  # each that is written otherwise once

    def __len__(self) -> int:
        return len(self.at_ns)

    def of(self, counter: str) -> tuple[Integers, Integers]:
        """Return when a counter was sampled, and the places of its values."""
        here = np.array([name == counter for name in self.names], bool)[self.name]
        return self.at_ns[here], self.value[here]

    def series(self, counter: str) -> dict[str, tuple[Integers, Integers]]:
        """Return of each series of a counter when it was a number that can be, and which."""
        moments: defaultdict[str, list[int]] = defaultdict(list)
        numbers: defaultdict[str, list[float]] = defaultdict(list)
        for at_ns, value in zip(*(column.tolist() for column in self.of(counter)), strict=True):
            for name, number in self.values[value].items():
                if isinstance(number, int | float) and 0 <= number < MOST:
                    moments[name].append(at_ns)
                    numbers[name].append(float(number))
        return {
            name: (np.array(moments[name], np.int64), np.array(numbers[name])) for name in numbers
        }


def samples_of(columns: EventColumns, mask: Integers | None) -> Samples:
    """Return the samples in a file, or in some of its rows."""
    sampled = columns.arguments.members[OF_FILE.index(OF_SAMPLES)]
    rows = sampled.rows
    chosen = columns.start_ns[rows] >= 0
    if mask is not None:
        chosen &= mask[rows]
    rows, texts = rows[chosen], sampled.columns[ARGUMENTS][chosen]
    labels, name = _numbered(columns.label[rows])
    codes, value = _numbered(texts)
    return Samples(
        columns.start_ns[rows],
        name,
        value,
        tuple(columns.labels[label].name for label in labels),
        tuple(decoded(sampled.texts[text]) for text in codes),
    )


def _numbered(codes: Integers) -> tuple[list[int], Integers]:
    """Return which codes there are, and of each row the place of its own among these."""
    there = np.bincount(codes) > 0
    return np.flatnonzero(there).tolist(), (np.cumsum(there) - 1)[codes]


def joined_samples(several: Sequence[Samples]) -> Samples:
    """Return samples of the files of a process as one, by time."""
    names = tuple(name for one in several for name in one.names)
    values = tuple(value for one in several for value in one.values)
    first_name = np.cumsum([0, *(len(one.names) for one in several)])
    first_value = np.cumsum([0, *(len(one.values) for one in several)])
    at_ns, name, value = (
        np.concatenate(columns)
        for columns in (
            [one.at_ns for one in several],
            [one.name + first for one, first in zip(several, first_name, strict=False)],
            [one.value + first for one, first in zip(several, first_value, strict=False)],
        )
    )
    order = np.argsort(at_ns, kind="stable")
    return Samples(at_ns[order], name[order], value[order], names, values)
