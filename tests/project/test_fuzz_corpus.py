"""The kept inputs of the fuzz programs: one archive each, the same for the same inputs."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "native" / "fuzz"


@pytest.fixture(name="corpus", scope="module")
def corpus_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus", FUZZ / "corpus.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_fuzz_program_has_kept_inputs(corpus: ModuleType, tmp_path: Path) -> None:
    programs = {path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.cpp")}
    archives = {path.name.removesuffix(".tar.xz"): path for path in corpus.ARCHIVES.iterdir()}
    assert set(archives) == programs
    for name, archive in archives.items():
        corpus.unpack(archive, tmp_path / name)
        assert len(list((tmp_path / name).iterdir())) > 100


def test_an_input_that_is_added_is_kept_and_nothing_else_changes_the_archive(
    corpus: ModuleType, tmp_path: Path
) -> None:
    inputs, archive = tmp_path / "inputs", tmp_path / "inputs.tar.xz"
    inputs.mkdir()
    (inputs / "b").write_bytes(b"\0\xff")
    (inputs / "a").write_bytes(b"")
    corpus.pack(inputs, archive)
    first = archive.read_bytes()
    os.utime(inputs / "a", (1, 1))
    (inputs / "b").chmod(0o600)
    archive.unlink()
    corpus.pack(inputs, archive)
    assert archive.read_bytes() == first
    (inputs / "crash-1").write_bytes(b"found")
    corpus.pack(inputs, archive)
    (inputs / "not kept").touch()
    corpus.unpack(archive, inputs)
    found = {path.name: path.read_bytes() for path in inputs.iterdir()}
    assert found == {"a": b"", "b": b"\0\xff", "crash-1": b"found"}
