"""Where the package cannot be built, the last line says why and what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment
from docs.pages import ROOT

BUILD = """
import sys, build_backend
build_backend.build_wheel(sys.argv[1], {"build-dir": sys.argv[2]})
"""
NO_HEADERS = "-DCMAKE_IGNORE_PATH=/usr/include;/usr/local/include"


def cmake() -> str:
    beside = Path(sys.executable).parent / "cmake"
    found = str(beside) if beside.exists() else shutil.which("cmake")
    assert found, "make test-packages installs cmake"
    return found


def last_line(folder: Path, arguments: str, *, path: str | None = None) -> str:
    """What a build says at last that is given arguments for CMake; it must fail."""
    env = clean_environment()
    env.pop("CXX", None)
    env.pop("CPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder), str(folder / "build")],
        cwd=ROOT,
        env={
            **env,
            "CMAKE_ARGS": arguments,
            "PYTHONPATH": str(ROOT / "native" / "packaging"),
            "PATH": path or env["PATH"],
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    return done.stdout.rstrip().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            NO_HEADERS,
            (
                "cannot build: libdeflate.h was not found; on Debian or Ubuntu: "
                "apt-get install libdeflate-dev"
            ),
        ),
        (
            f"{NO_HEADERS} -DDEFLATE_INCLUDE=/somewhere",
            "cannot build: zstd.h was not found; on Debian or Ubuntu: apt-get install libzstd-dev",
        ),
        (
            "-DPython_INCLUDE_DIR=/nowhere",
            (
                r"cannot build: Python.h of \S+ was not found; on Debian or Ubuntu: "
                "apt-get install python3-dev"
            ),
        ),
    ],
    ids=["libdeflate", "libzstd", "Python.h"],
)
def test_a_missing_header_is_the_last_line(tmp_path: Path, arguments: str, line: str) -> None:
    assert re.fullmatch(line, last_line(tmp_path, arguments))


def test_a_missing_compiler_is_the_last_line(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cmake", "ninja", "make"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    said = last_line(tmp_path, "", path=str(tools))
    assert said == (
        "cannot build: no C++ compiler was found; on Debian or Ubuntu: apt-get install g++"
    )


def check_python(folder: Path, version: str, soabi: str) -> str:
    """What CMake makes of an interpreter with that version whose modules are named so."""
    script = folder / "check.cmake"
    script.write_text(
        f'include("{ROOT}/native/requirements.cmake")\ndftrace_check_python({version} {soabi})\n'
    )
    reason = folder / "reason"
    reason.unlink(missing_ok=True)
    done = subprocess.run(
        [cmake(), "-P", str(script)],
        env={**os.environ, "DFTRACE_REFUSAL": str(reason)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (not reason.exists()), done.stderr
    return reason.read_text().strip() if reason.exists() else ""


def test_which_interpreters_it_can_be_built_for(tmp_path: Path) -> None:
    for minor in range(10, 15):
        soabi = f"cpython-3{minor}-x86_64-linux-gnu"
        assert check_python(tmp_path, f"3.{minor}.0", soabi) == ""
    for version, soabi, reason in (
        ("3.9.18", "cpython-39-x86_64-linux-gnu", "is for CPython 3.10 to 3.14; this is 3.9.18"),
        ("3.15.0", "cpython-315-x86_64-linux-gnu", "is for CPython 3.10 to 3.14; this is 3.15.0"),
        ("3.13.0", "cpython-313t-x86_64-linux-gnu", "this is the free-threaded build of 3.13.0"),
        ("3.14.1", "cpython-314t-x86_64-linux-gnu", "this is the free-threaded build of 3.14.1"),
        (
            "3.10.12",
            "pypy310-pp73",
            "is for CPython; this interpreter's modules are named pypy310-pp73",
        ),
    ):
        assert check_python(tmp_path, version, soabi).endswith(reason)


def test_an_interpreter_without_the_lock_is_told_of_in_one_line(tmp_path: Path) -> None:
    """By a real one, where there is one."""
    python = shutil.which("python3.14t") or shutil.which("python3.13t")
    if python is None:
        pytest.skip("no python3.13t or python3.14t is here")
    reason = tmp_path / "reason"
    done = subprocess.run(
        [cmake(), "-S", ROOT / "native", "-B", tmp_path / "b", f"-DPython_EXECUTABLE={python}"],
        env={**os.environ, "DFTRACE_REFUSAL": str(reason)},
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
    needed = "dftrace_ai needs CPython with the global interpreter lock"
    assert re.fullmatch(
        rf"{needed}; this is the free-threaded build of 3\.1[34]\.\d+\n", reason.read_text()
    )


def test_pip_refuses_the_same_versions() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires-python = ">=3.10,<3.15"' in text
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    assert classified == ["3.10", "3.11", "3.12", "3.13", "3.14"]
