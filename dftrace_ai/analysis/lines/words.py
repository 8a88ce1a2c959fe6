"""Lines of the program in sentences."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.lines.carrying import MODULE
from dftrace_ai.analysis.texts import ARGUMENT_LETTERS, percent
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from dftrace_ai.analysis.lines.carrying import Carrier

PHASES: Final = {
    "wait": "the wait for data",
    "data": "work on data",
    "transfer": "copies to the device",
    "comm": "communication",
    "compute": "other computation",
    "optimizer": "the optimizer",
    "checkpoint": "saving",
    "gpu": "what the GPU is busy in",
    "launch": "launching kernels",
    "other": "other work",
    "none": "what is not annotated",
    "io": "reading files",
}
"""What people are told of the samples of a part of a step; others have its name."""


def phase_name(part: str) -> str:
    """Return what people are told of the samples of a part of a step."""
    return PHASES.get(part, part)


def place_text(function: str, file: str, line: int) -> str:
    """Return where that is: ``decode (augment.py:88)``; no more than the function without files."""
    name = PurePosixPath(file).name
    at = shortened(f"{name}:{line}" if line else name, ARGUMENT_LETTERS)
    if function == MODULE and at:
        return at
    told = shortened(function, ARGUMENT_LETTERS)
    return f"{told} ({at})" if at else told


def carrier_text(carrier: Carrier, phase: str) -> str:
    """Return which line carries a phase, in one sentence without its full stop."""
    text = f"{percent(carrier.share)} of {phase} lies in "
    text += place_text(carrier.function, carrier.file, carrier.line)
    if carrier.within:
        text += f", there in {shortened(carrier.within, ARGUMENT_LETTERS)}"
    if carrier.waits:
        text += f", and waits there ({percent(carrier.cpu or 0)} CPU)"
    callers = [place_text(one.function, one.file, one.line) for one in carrier.callers]
    if len(callers) == 1:
        text += f", called by {callers[0]}"
    elif callers:
        shares = [percent(one.share) for one in carrier.callers]
        each = [f"{share} by {caller}" for share, caller in zip(shares, callers, strict=True)]
        text += f", called {' and '.join(each)}"
    return f"{text}; {counted(carrier.samples, 'sample')}"
