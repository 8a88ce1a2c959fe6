"""Files that a training reads and writes: what is recorded, and that they are as without it."""

from __future__ import annotations

import builtins
import fileinput
import gc
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
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import Recording, Traced
from torch import nn

from dftrace_ai.integrations.auto import Auto
from dftrace_ai.integrations.options import folders_of

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


def operations(run: Recording) -> list[tuple[Any, ...]]:
    """Of each operation its name, the file's, and bytes and offset where it has some."""
    paths: dict[str, str] = {}
    found: list[tuple[Any, ...]] = []
    for span in sorted((s for s in run.trace.spans if ".io." in s.name), key=lambda s: s.ts_ns):
        if "path" in span.args:
            paths[span.args["fhash"]] = Path(span.args["path"]).name
        moved = (span.args[key] for key in ("bytes", "offset", "error") if key in span.args)
        found.append((span.name, paths[span.args["fhash"]], *moved))
    return found


def of(name: str, *operations: Any) -> list[tuple[Any, ...]]:
    """What is recorded of a file: names of operations, or tuples of these with bytes and offset."""
    told = (one if isinstance(one, tuple) else (one,) for one in operations)
    return [(f"data.io.{kind}", name, *moved) for kind, *moved in told]


def whole(name: str, size: int) -> list[tuple[Any, ...]]:
    """What reading all of a file at once is."""
    return of(name, "open", ("read", size, 0), "close")


def test_what_is_recorded_of_files(
    traced: Traced, auto: Auto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    (data / "deep").mkdir(parents=True)
    elsewhere.mkdir()
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(data)
    other.mkdir()
    for folder in (data, data / "deep", elsewhere, other):
        (folder / "t").write_bytes(TEXT)
    (other / "big").write_bytes(bytes(range(256)) * 400)
    monkeypatch.chdir(data)
    size, sizes = len(TEXT), 256 * 400
    expected: list[tuple[Any, ...]] = []
    with traced(perfetto=False, data_dir=f"{link}:{other.as_uri()}:s3://bucket/x") as run:
        auto(io=True)
        for path in ("t", "./deep/../t", b"t", Path("t"), data / "t", link / "t", str(link / "t")):
            with open(path, "rb") as file:
                assert file.read() == TEXT
            expected += whole("t", size)
        assert os.fsdecode(Path("deep/t").read_bytes()) == TEXT.decode()
        expected += whole("t", size)
        for path in (elsewhere / "t", "../elsewhere/t", str(elsewhere / "t").encode()):
            with open(path, "rb") as file:
                assert file.read() == TEXT
        with open("t") as text:
            assert list(text) == ["one\n", "two\n", "three\n"]
        expected += of("t", "open", ("read", size, 0), ("read", 0, size), "close")
        with open("t", "rb", 0) as raw:
            assert [raw.read(4), raw.readinto(bytearray(3)), raw.readall()] == [
                b"one\n",
                3,
                TEXT[7:],
            ]
        expected += of("t", "open", ("read", 4, 0), ("read", 3, 4), ("read", size - 7, 7), "close")
        with open("new", "w+b") as file:
            file.write(b"ab")
            file.write(b"cd")
            file.seek(0)
            assert file.read(1) == b"a"
        expected += of("new", "open", ("write", 4, 0), ("read", 4, 0), "close")
        with open("new", "ab", 0) as file:
            file.write(b"e")
        expected += of("new", "open", ("write", 1, 4), "close")
        # One that is dropped is closed then.
        read = open("t", "rb", 0).read
        assert read(2) == TEXT[:2]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is not closed
            del read
        expected += of("t", "open", ("read", 2, 0), "close")
        number = os.open(other / "big", os.O_RDONLY)
        assert os.read(number, 4) == bytes(range(4))
        assert os.pread(number, 2, 300) == bytes([44, 45])
        with open(number, "rb", closefd=False) as file:
            assert len(file.read()) == sizes - 4
        assert np.fromfile(os.fspath(other / "big"), np.uint8, 3).tolist() == [0, 1, 2]
        os.close(number)
        expected += of(
            "big",
            "open",
            ("read", 4, 0),
            ("read", 2, 300),
            ("read", sizes - 4, 4),
            ("read", 3, 0),
            "open",
            "close",
            "close",
        )
        number = os.open("new", os.O_WRONLY | os.O_TRUNC)
        os.write(number, b"xy")
        os.pwrite(number, b"z", 1)
        os.fsync(number)
        os.close(number)
        expected += of("new", "open", ("write", 2, 0), ("write", 1, 1), "write.sync", "close")
        with pytest.raises(FileNotFoundError):
            open("missing")
        expected += of("missing", ("open", "FileNotFoundError"))
        with tempfile.NamedTemporaryFile(dir=data, prefix="") as file:
            file.write(b"1")
        name = Path(file.name).name
        expected += of(name, "open", ("write", 1, 0), "close")
        np.save("n.npy", np.arange(500))
        assert np.load("n.npy").sum() == 499 * 250
        assert np.load("n.npy", mmap_mode="r").shape == (500,)
        folder = os.open(".", os.O_RDONLY)
        inner = os.open("t", os.O_RDONLY, dir_fd=folder)
        os.close(inner)
        os.close(folder)
        os.close(os.open(elsewhere / "t", os.O_RDONLY))
        auto.remove()
        with open("t", "rb") as file:
            file.read()
    found = operations(run)
    arrays = [one for one in found if one[1] == "n.npy"]
    assert [one for one in found if one[1] != "n.npy"] == [
        *expected,
        *of("t", "open", "close"),
    ]
    assert ("data.io.read", "n.npy", 4000, 128) in arrays
    assert sum(one[0] == "data.io.open" for one in arrays) >= 3
    # One file has one hash and one path, by whatever path it is opened.
    paths = {s.args["path"] for s in run.trace.spans if "path" in s.args}
    assert {p for p in paths if p.endswith("/t")} == {f"{link}/t", f"{link}/deep/t"}


def test_folders_that_a_setting_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / "a:b"
    odd.mkdir()
    assert folders_of(None) == folders_of("") == folders_of("s3://bucket/a") == ()
    assert folders_of("all") == ("/",)
    assert folders_of("/a/:b:file:///c%20d:file://host/e:/a") == (
        *("/a", str(tmp_path / "b"), "/c d", "/e"),
    )
    assert folders_of(str(odd)) == (str(odd),)


def test_files_are_as_they_are_without(traced: Traced, auto: Auto, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    without = list(as_users_do(data))
    for one in data.iterdir():
        one.unlink()
    with traced(perfetto=False, data_dir=str(data)) as run:
        auto(io=True)
        within = list(as_users_do(data))
        auto.remove()
    for number, (one, other) in enumerate(zip(without, within, strict=True)):
        assert one == other, number
    assert len(operations(run)) > 100


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a file may be open when it is interrupted
def test_what_a_handler_raises_in_the_midst_of_recording_is_the_program_s(
    traced: Traced, auto: Auto, tmp_path: Path
) -> None:
    class TimedOutError(Exception):
        pass

    (tmp_path / "t").write_bytes(TEXT)
    calls = most = 0

    def handler(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == most:
            raise TimedOutError

    def opened_with_handler_at(call: int) -> None:
        nonlocal calls, most
        calls, most = 0, call
        before = sys.gettrace()
        sys.settrace(handler)  # before every function, where a handler of a signal may be called
        try:
            file = open(tmp_path / "t", "rb")
        finally:
            sys.settrace(before)
        file.close()

    gc.disable()  # calls others' functions
    try:
        with traced(perfetto=False, data_dir=str(tmp_path)) as run:
            auto(io=True)
            for _ in range(2):
                opened_with_handler_at(0)
            assert calls > 10
            for call in range(1, calls + 1):
                with pytest.raises(TimedOutError):
                    opened_with_handler_at(call)
            (tmp_path / "last").write_bytes(TEXT)
    finally:
        gc.enable()
    assert ("data.io.open", "last") in operations(run)


def test_where_a_test_of_the_program_s_has_others_in_the_place_of_functions(
    traced: Traced, auto: Auto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hears of files goes on; where it cannot, it is told once, though all files are looked at."""
    (tmp_path / "t").write_bytes(TEXT)
    told = []

    def tell(unraisable: Any) -> None:
        told.append(unraisable.exc_type)
        os.read(file.fileno(), 1)  # files are read by who prints the lines of a traceback

    with traced(perfetto=False, data_dir="all") as run:
        auto(io=True, parts="io")
        monkeypatch.setattr(sys, "unraisablehook", tell)
        with (
            mock.patch("os.fstat", side_effect=TypeError),
            mock.patch("os.lseek", side_effect=TypeError),
            open(tmp_path / "t", "rb", buffering=0) as file,
        ):
            assert os.read(file.fileno(), 8) == TEXT[:8]
        auto.remove()
    assert told == [TypeError]  # of `os.lseek`
    assert ("data.io.open", "t") in operations(run)


def test_the_functions_are_python_s_own_again(traced: Traced, auto: Auto, tmp_path: Path) -> None:
    def all_of_them() -> list[Any]:
        names = ("open", "read", "pread", "readv", "write", "pwrite", "writev", "close", "fsync")
        return [builtins.open, io.open, np.fromfile, *(getattr(os, name) for name in names)]

    before = all_of_them()
    able = [{*os.supports_dir_fd}, {*os.supports_fd}, {*os.supports_effective_ids}]
    (tmp_path / "t").write_bytes(TEXT)
    with traced(perfetto=False, data_dir=str(tmp_path)) as run:
        auto(io=True)
        assert "io" in auto.parts
        assert builtins.open is io.open is not before[0]
        assert os.open in os.supports_dir_fd
        for one, original in zip(all_of_them(), before, strict=True):
            assert one is not original
            assert (type(one), one.__name__, one.__qualname__) == (
                *(type(original), original.__name__, original.__qualname__),
            )
            assert one.__doc__ == original.__doc__
            assert pickle.loads(pickle.dumps(one)) is one
        with open(tmp_path / "t", "rb") as file:
            auto.remove()
            assert file.read() == TEXT
        auto()
        assert "io" not in auto.parts
        auto.remove()
        auto(parts="io")
        assert auto.parts == ("io",)
        auto.remove()
    assert all(one is other for one, other in zip(all_of_them(), before, strict=True))
    assert able == [os.supports_dir_fd, os.supports_fd, os.supports_effective_ids]
    assert operations(run) == [("data.io.open", "t")]


def test_files_of_checkpoints_and_of_steps(
    traced: Traced, auto: Auto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever they are; and what is opened before the steps that are asked for is known in them."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "t").write_bytes(TEXT)
    saved = tmp_path / "saved"
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    with traced(perfetto=False, data_dir=str(data)) as run:
        auto(io=True, steps="1:")
        with open(data / "t", "rb", 0) as file:
            file.read(1)
            step()
            step()  # with its beginning the first is over
            file.read(2)
            with open(saved, "wb") as target:
                torch.save(torch.ones(2), target)
            torch.save(torch.ones(2), saved)
            torch.load(saved)
        auto.remove()
    with traced(perfetto=False):
        auto(io=True)
        auto.remove()
    assert "data_dir, which names the folders of the data, is not set" in caplog.text
    found = operations(run)
    assert found[0] == ("data.io.read", "t", 2, 1)
    # By its path it is written in C++: in one piece, as far as is known.
    assert found[1:4] == [
        ("checkpoint.io.open", "saved"),
        ("checkpoint.io.write", "saved", saved.stat().st_size, 0),
        ("checkpoint.io.close", "saved"),
    ]
    kinds = {one[0] for one in found[4:-1]}
    assert kinds == {"checkpoint.io.open", "checkpoint.io.read", "checkpoint.io.close"}
    assert {one[1] for one in found[4:-1]} == {"saved"}
    assert found[-1] == ("data.io.close", "t")
    calls = {s.id: s.name for s in run.trace.spans if s.name in ("capture", "restart")}
    parents = [
        calls[s.args["p_idx"]] for s in run.trace.spans if s.name.startswith("checkpoint.io.")
    ]
    assert parents[:3] == ["capture"] * 3
    assert set(parents[3:]) == {"restart"}
