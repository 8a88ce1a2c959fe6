"""The inputs that are kept for the fuzz programs, one archive each: corpus.py unpack|pack FOLDER.

`unpack` puts them below the folder, a folder for each program; `pack` makes the archives of what
is there. Where the inputs are the same the archive stays as it is.
"""

from __future__ import annotations

import io
import lzma
import shutil
import sys
import tarfile
from pathlib import Path

ARCHIVES = Path(__file__).parent / "corpus"


def pack(folder: Path, archive: Path) -> None:
    """Make the archive of the files in a folder, without their times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as inputs:
        for path in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(path.name)
            entry.size = path.stat().st_size
            inputs.addfile(entry, io.BytesIO(path.read_bytes()))
    # Another version of the compressor may make other bytes of the same inputs.
    if not archive.exists() or lzma.decompress(archive.read_bytes()) != packed.getvalue():
        archive.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(archive: Path, folder: Path) -> None:
    """Put what the archive holds into the folder, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(archive, mode="r:xz") as inputs:
        for entry in inputs:
            content = inputs.extractfile(entry)
            if content is not None:
                (folder / Path(entry.name).name).write_bytes(content.read())


def main() -> None:
    """Pack or unpack the inputs of every program."""
    task, folder = sys.argv[1], Path(sys.argv[2])
    for archive in sorted(ARCHIVES.glob("*.tar.xz")):
        inputs = folder / archive.name.removesuffix(".tar.xz")
        if task == "unpack":
            unpack(archive, inputs)
        else:
            pack(inputs, archive)


if __name__ == "__main__":
    main()
