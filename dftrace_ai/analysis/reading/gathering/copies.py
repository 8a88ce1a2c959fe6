"""Temporary copies of traces that cannot be read where they are, small and soon gone."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dftrace_ai.errors import DftraceError
from dftrace_ai.spare_folders import SpareFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typing_extensions import Self

__all__ = ["CopyFolder", "PackedLines"]

# Each is a frame of its own, so that threads share the reading.
FRAME_BYTES = 1024 * 1024


class CopyFolder:
    """A directory for copies, which is gone when nothing refers to it any more.

    Attributes:
        path: where it is, as ``TMPDIR`` says.

    Raises:
        DftraceError: there is no room for it.
    """

    def __init__(self) -> None:
        with _told(tempfile.gettempdir()):
            self._folder = SpareFolder()
        self.path = self._folder.path
        self._count = 0

    def new_file(self) -> Path:
        """Return a name that no file has yet."""
        self._count += 1
        return self.path / str(self._count)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Tell of copies that cannot be written what can be done.

        Raises:
            DftraceError: they cannot.
        """
        with _told(str(self.path)):
            yield


@contextmanager
def _told(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DftraceError(
            f"temporary files cannot be written to {place}: {error.strerror}; "
            "choose another place with TMPDIR"
        ) from error


class PackedLines:
    r"""Writes text as zstd frames of whole lines: what is small stays so.

    Args:
        path: the file, which does not exist yet.

    Attributes:
        file_bytes: what it takes so far.

    Example::

        with PackedLines(folder.new_file()) as copy:
            copy.add(b"{}\n")
    """

    def __init__(self, path: Path) -> None:
        import zstandard

        self._packer = zstandard.ZstdCompressor(level=1)
        self._held = bytearray()
        self.file_bytes = 0
        self._out = path.open("xb")

    def add(self, text: bytes) -> None:
        """Add text; lines may be cut anywhere."""
        self._held += text
        if len(self._held) >= FRAME_BYTES:
            # A line longer than that has to be in frames that end within it.
            self._pack(self._held.rfind(b"\n") + 1 or len(self._held))

    def _pack(self, size: int) -> None:
        frame = self._packer.compress(bytes(self._held[:size]))
        del self._held[:size]
        self.file_bytes += self._out.write(frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            if self._held:
                self._pack(len(self._held))
        finally:
            self._out.close()
