"""What programs do with files, for who compares what they find."""

from __future__ import annotations

import fileinput
import gzip
import io
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

TEXT = b"one\ntwo\nthree\n"


def as_users_do(folder: Path) -> Iterator[Any]:
    """What programs do with files, and what they find."""

    def tried(call: Callable[[], object], *, of_ours: bool = False) -> Any:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                result = call()
            except Exception as error:
                frames = traceback.extract_tb(error.__traceback__)
                places = [(f.filename, f.lineno) for f in frames]
                if of_ours:
                    places = [place for place in places if "dftrace_ai" not in place[0]]
                found: Any = type(error), str(error), places
            else:
                found = result
                if isinstance(result, io.IOBase):
                    result.close()
                    found = type(result)
        return found, [(w.category, str(w.message), w.filename, w.lineno) for w in told]

    path = folder / "t"
    path.write_bytes(TEXT)
    kinds = io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO
    for mode, buffering in (("r", -1), ("rb", -1), ("r+b", -1), ("rb", 0), ("br+", 0), ("ab", -1)):
        with open(path, mode, buffering) as file:
            raw = file if buffering == 0 else getattr(file, "buffer", file).raw
            yield [isinstance(file, kind) for kind in kinds], isinstance(raw, io.FileIO)
            yield file.mode, file.name == path, file.closed, raw.mode, raw.name == path
            yield file.readable(), file.writable(), file.seekable(), file.isatty(), raw.closefd
            yield type(file).__name__, type(raw).__name__, repr(raw).replace(str(folder), "")
            yield tried(lambda file=file: pickle.dumps(file))[0][:2]
            yield os.fstat(file.fileno()).st_ino == path.stat().st_ino
        yield file.closed, raw.closed, tried(file.read, of_ours=True), tried(file.fileno)
    for given in (
        (folder,),
        (folder / "missing" / "x",),
        (path, "q"),
        (path, "rwb"),
        (path, "r", 0),
        (path, "rb", -1, "utf-8"),
        (path, "rb", 0, None, "strict"),
        (path, "rb", 1),
        (path, "wb", 0, None, None, None, False),
        ("a\0b",),
        (-1,),
        (2**40,),
        (None,),
        (),
        (path, "x"),
        (path, "xb", 0),
    ):
        of_ours = given[2:3] == (0,)
        yield tried(lambda given=given: open(*given), of_ours=of_ours)
    yield tried(lambda: open(path, moed="r"))
    yield tried(lambda: os.open(folder / "missing", os.O_RDONLY))
    yield tried(lambda: os.read(-1, 1))
    yield tried(lambda: os.close(-1))
    yield tried(lambda: os.read())
    yield tried(lambda: np.fromfile(folder / "missing"))
    yield tried(lambda: np.fromfile(io.BytesIO(b"12")))
    yield tried(lambda: np.fromfile(5.0))
    yield tried(lambda: open(path, [], 0))
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags)) as file:
        yield file.readline(), next(file), file.read1(2), file.peek(1), file.tell(), list(file)
    with open(path, newline="") as text:
        yield text.readline(), text.tell(), text.read(2), text.seek(0), text.readlines()
    with open(path, "r+b") as file:
        yield file.seek(3), file.write(b"!"), file.read(), file.truncate(8), file.flush()
    number = os.open(path, os.O_RDONLY)
    with open(number, closefd=False) as text:
        yield text.read()
    yield os.lseek(number, 0, os.SEEK_CUR), os.close(number), tried(lambda: os.read(number, 1))
    with fileinput.input([path]) as lines:
        yield list(lines)
    with gzip.open(folder / "g", "wb") as file:
        file.write(TEXT)
    with gzip.open(folder / "g") as file:
        yield file.read()
    with zipfile.ZipFile(folder / "z", "w") as archive:
        archive.writestr("member", TEXT)
    with zipfile.ZipFile(folder / "z") as archive:
        yield archive.read("member")
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(TEXT)
        file.seek(0)
        yield file.read()
    with open(folder / "out", "wb") as file:
        done = subprocess.run([sys.executable, "-S", "-c", "print(5)"], stdout=file, check=True)
        yield done.returncode
    yield (folder / "out").read_text()
    buffered = open(path, "rb")
    raw = buffered.detach()
    yield raw.read(2), raw.closed, raw.close(), raw.closed

    class Own(io.FileIO):
        pass

    with Own(path) as own:
        yield own.read()

    class Named:
        asked = 0

        def __fspath__(self) -> str:
            self.asked += 1
            return str(path)

    named = Named()
    with open(named) as text:
        yield text.read(), named.asked

    class Holds:
        opened = open

    with Holds().opened(path) as text:
        yield text.read()
    np.save(folder / "a.npy", np.arange(7.0))
    yield np.load(folder / "a.npy").tobytes()
    torch.save({"w": torch.arange(5)}, folder / "w.pt")
    yield torch.load(folder / "w.pt")["w"].tolist()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        open(path).read(1)
        open(path, "rb", 0).read(1)
        yield [(w.category, str(w.message)) for w in told if "unclosed" in str(w.message)]
