"""The events of files as NumPy arrays by column, so many rows at a time; needs NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dftrace_ai.analysis.reading.scanning.blocks import (
    LETTERS,
    TraceBlocks,
    arguments_of,
    new_scanner,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock, EventScanner
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["event_batches"]

LETTER_TEXTS: Final = np.array([chr(letter) for letter in LETTERS.tolist()], object)

Batch = dict[str, "NDArray[Any]"]


def event_batches(
    files: Sequence[Trace], columns: Sequence[str], rows: int, notes: list[str]
) -> Iterator[Batch]:
    """Yield the events of files; see `TraceSet.batches`. `notes` gets what could not be read."""
    for number, trace in enumerate(files):
        scanner = new_scanner()
        blocks = TraceBlocks(scanner, trace)
        texts = _LabelTexts(scanner)
        held: list[Batch] = []
        count = 0
        for block in blocks:
            if not block.rows:
                continue
            texts.follow()
            held.append({name: _column(name, block, number, texts) for name in columns})
            count += block.rows
            if count < rows:
                continue
            whole = _joined(held)
            for begin in range(0, count - count % rows, rows):
                yield _window(whole, begin, begin + rows)
            held, count = [_window(whole, count - count % rows, count)], count % rows
        if count:
            yield _joined(held)
        notes += blocks.notes


class _LabelTexts:
    """Categories and names by the number of both."""

    def __init__(self, scanner: EventScanner) -> None:
        self._scanner = scanner
        self.cat: NDArray[Any] = np.zeros(0, object)
        self.name: NDArray[Any] = np.zeros(0, object)

    def follow(self) -> None:
        """Take those that have come since."""
        new = self._scanner.labels(len(self.cat))
        if new:
            self.cat = np.concatenate([self.cat, np.array([cat for cat, _ in new], object)])
            self.name = np.concatenate([self.name, np.array([name for _, name in new], object)])


def _column(name: str, block: EventBlock, file: int, texts: _LabelTexts) -> NDArray[Any]:
    if name == "file":
        return np.full(block.rows, file, np.uint32)
    if name == "ph":
        phases: NDArray[Any] = LETTER_TEXTS[np.asarray(block.ph)]
        for row, text in block.phases.items():
            phases[row] = text
        return phases
    if name in ("cat", "name"):
        found: NDArray[Any] = getattr(texts, name)[np.asarray(block.label)]
        return found
    if name == "args":
        return _argument_texts(block)
    return np.asarray(getattr(block, name))


def _argument_texts(block: EventBlock) -> NDArray[Any]:
    slices, sizes = arguments_of(block)
    texts = np.full(block.rows, "", object)
    texts[sizes > 0] = np.array([str(text, "utf-8") for text in slices], object)
    return texts


def _window(batch: Batch, begin: int, end: int) -> Batch:
    return {name: values[begin:end] for name, values in batch.items()}


def _joined(held: list[Batch]) -> Batch:
    # Also of one a copy: each block holds all of its lines.
    return {name: np.concatenate([batch[name] for batch in held]) for name in held[0]}
