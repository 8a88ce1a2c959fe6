"""The build backend: scikit-build-core, with uPlot fetched; its last words tell why it refused."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import uplot
from scikit_build_core import build

if TYPE_CHECKING:
    from collections.abc import Iterator

Settings = dict[str, list[str] | str] | None

get_requires_for_build_wheel = build.get_requires_for_build_wheel
get_requires_for_build_editable = build.get_requires_for_build_editable
get_requires_for_build_sdist = build.get_requires_for_build_sdist
prepare_metadata_for_build_wheel = build.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build.prepare_metadata_for_build_editable


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel into a directory, as PEP 517 has it; returns its name."""
    uplot.place_or_tell()
    with _reason_told_last():
        return build.build_wheel(directory, settings, metadata)


def build_editable(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build what an editable installation installs, as PEP 660 has it; returns its name."""
    uplot.place_or_tell()
    with _reason_told_last():
        return build.build_editable(directory, settings, metadata)


def build_sdist(directory: str, settings: Settings = None) -> str:
    """Pack the sources into a directory, as PEP 517 has it; returns the archive's name."""
    uplot.place_or_tell()
    return build.build_sdist(directory, settings)


@contextlib.contextmanager
def _reason_told_last() -> Iterator[None]:
    """Tell on the last line what `native/requirements.cmake` found missing."""
    with tempfile.TemporaryDirectory() as folder:
        reason = Path(folder) / "reason"
        os.environ["DFTRACE_REFUSAL"] = str(reason)
        try:
            yield
        except SystemExit:
            if reason.exists():
                sys.stdout.flush()
                print(f"\ncannot build: {reason.read_text().strip()}", file=sys.stderr, flush=True)
            raise
        finally:
            del os.environ["DFTRACE_REFUSAL"]
