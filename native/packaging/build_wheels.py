"""Wheels for other machines: python native/packaging/build_wheels.py --out dist [--this].

Each is built with the compression libraries inside, and named after the oldest glibc that it runs
with, which auditwheel finds out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import uplot

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
HAS_HEADERS = """
import pathlib, sys, sysconfig
assert sysconfig.get_config_var("Py_GIL_DISABLED") != 1
assert pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()
print("%d.%d" % sys.version_info[:2])
"""


def version_of(python: str) -> str | None:
    """Of an interpreter that modules can be built for, such as "3.11"; else None."""
    told = subprocess.run([python, "-c", HAS_HEADERS], capture_output=True, text=True, check=False)
    return told.stdout.strip() if told.returncode == 0 else None


def interpreters() -> list[str]:
    """One interpreter for each version: what the path has, else pyenv's."""
    found = {}
    for version in VERSIONS:
        if version_of(sys.executable) == version:
            found[version] = sys.executable
            continue
        name = f"python{version}"
        places = [shutil.which(name), *_of_pyenv(version, name)]
        usable = (p for p in places if p and version_of(p) == version)
        if python := next(usable, None):
            found[version] = python
        else:
            print(f"no {name} with headers is here", file=sys.stderr)
    return list(found.values())


def _of_pyenv(version: str, name: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [str(p / "bin" / name) for p in sorted(root.glob(f"versions/{version}.*"), reverse=True)]


def build(python: str, folder: Path, *, recorder: bool = True) -> Path:
    """Build for one interpreter into a folder; returns the wheel, which fits this machine only."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    defined = {"DFTRACE_PORTABLE": "ON", "DFTRACE_RECORDER": "ON" if recorder else "OFF"}
    options = ["--no-deps", "--quiet"]
    for name, value in defined.items():
        options += ["-C", f"cmake.define.{name}={value}"]
    if python == sys.executable:
        # With the tools that built the editable installation: then only the module is linked anew.
        options.append("--no-build-isolation")
    subprocess.run([*pip, "wheel", *options, "--wheel-dir", str(folder), str(ROOT)], check=True)
    return next(folder.glob("*.whl"))


def repair(wheel: Path, out: Path) -> Path:
    """Check what a wheel needs of a machine, and put a copy that is named so into `out`.

    Raises:
        SystemExit: It needs a library that not every machine has, or `advzip` is not here.
    """
    advzip = shutil.which("advzip")
    if advzip is None:
        raise SystemExit("advzip packs wheels; on Debian or Ubuntu: apt-get install advancecomp")
    tools = Path(sys.executable).parent
    path = os.pathsep.join([str(tools), os.environ.get("PATH", "")])
    pattern = "-".join([*wheel.name.split("-")[:4], "*.whl"])
    for old in out.glob(pattern):
        old.unlink()
    options = ["--only-plat", "--wheel-dir", str(out)]
    command = [sys.executable, "-m", "auditwheel", "repair", *options]
    told = subprocess.run(
        [*command, str(wheel)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode:
        raise SystemExit(told.stderr)
    (repaired,) = out.glob(pattern)
    taken_in = [n for n in zipfile.ZipFile(repaired).namelist() if ".libs/" in n]
    if taken_in:
        raise SystemExit(f"{repaired}: not linked into the module, but beside it: {taken_in}")
    # The same files, deflated better than zlib does: 1,999,463 bytes became 1,944,928.
    subprocess.run([advzip, "--recompress", "--shrink-normal", "-q", str(repaired)], check=True)
    return repaired


def main() -> None:
    """Build all that is asked for; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the wheels go")
    parser.add_argument("--this", action="store_true", help="for this interpreter alone")
    parser.add_argument("--reader", action="store_true", help="without the recorder")
    asked = parser.parse_args()
    # pip keeps to itself what the build says of it.
    uplot.place_or_tell()
    for python in [sys.executable] if asked.this else interpreters():
        built = build(python, ROOT / "build" / "unrepaired", recorder=not asked.reader)
        wheel = repair(built, asked.out)
        print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
