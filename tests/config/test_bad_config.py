"""What is wrong with the settings is said at initialize, by name, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import RunScript, trace_files

import dftrace_ai
from dftrace_ai import DftraceError, ai
from dftrace_ai.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_run() -> Iterator[None]:
    dftrace_ai.finalize()
    yield
    dftrace_ai.finalize()


def assert_still_usable(folder: Path) -> None:
    """After the error nodes are inert, and a right initialize works."""
    with ai.compute.forward:
        pass
    with dftrace_ai.tracing(log_file=folder / "after"), ai.compute.step:
        pass
    assert len([f for f in trace_files(folder) if f.name.startswith("after-")]) == 1


@pytest.mark.parametrize(
    ("given", "mend"),
    [
        ("out/trace", "log_file='out/trace'"),
        (Path("out/trace"), "log_file='out/trace'"),
        ({"ids": False}, "by name, as in ids=False"),
        (assert_still_usable, "@dftrace_ai.tracing()"),
    ],
    ids=["text", "path", "dict", "function"],
)
def test_what_is_no_config(tmp_path: Path, given: Any, mend: str) -> None:
    for door in (dftrace_ai.initialize, dftrace_ai.tracing):
        with pytest.raises(ConfigError, match="a Config is needed in this place") as said:
            door(given)
        assert mend in str(said.value)
        assert type(given).__name__ in str(said.value)
    assert_still_usable(tmp_path)
    with dftrace_ai.tracing(log_file=tmp_path / "on") as run:
        with pytest.raises(ConfigError):
            dftrace_ai.initialize(given)
        with ai.compute.step:
            pass
    assert run.stats()["events"] == 1


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Root may not everywhere, too: the kernel makes no files under /proc, and /dev/full is full."""
    (tmp_path / "file").write_text("x")
    for place, said in (
        (tmp_path / "file" / "t", "file"),
        (tmp_path / "file" / "deep" / "t", "file"),
        (Path("/proc/self/t"), "/proc"),
        (Path("/proc/dftrace/t"), "log_file"),
        (Path("/dev/full/t"), "/dev/full"),
    ):
        with pytest.raises(DftraceError, match=said):
            dftrace_ai.initialize(log_file=place)
    with pytest.raises(DftraceError, match="file"):
        dftrace_ai.initialize(log_file=tmp_path / "t", spool_dir=tmp_path / "file" / "spool")
    assert_still_usable(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(DftraceError, match="locked"):
        dftrace_ai.initialize(log_file=locked / "t")
    assert_still_usable(tmp_path)


def test_from_the_environment_at_import_nothing_is_raised(run_script: RunScript) -> None:
    """A bad value stops initialize, not `import dftrace_ai`, nor training without a run."""
    done = run_script(
        """
        import dftrace_ai
        from dftrace_ai import ai
        with ai.compute.forward:
            pass
        try:
            dftrace_ai.initialize()
        except dftrace_ai.DftraceError as e:
            print('"said"')
        """,
        env={"DFTRACE_COMPRESSION": "lz4"},
    )
    assert done.said == ["said"]
    assert done.files == []


@pytest.mark.parametrize("name", ["log_file", "spool_dir"])
def test_a_user_without_a_home_directory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(ConfigError, match="'~/t' is not accepted"):
        dftrace_ai.initialize(**{name: "~/t"})
