"""Programs below `dftrace run`, beside the same ones without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import clean_environment

LIMIT_S = 300
TELLING = (sys.executable, "-m", "dftrace_ai.cli", "run")
RUN = (*TELLING, "--quiet")

# What has not to be torch: of `auto`, the part that needs nothing of it.
PARTS = "steps"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a program that finds a stand-in for torch, which is quick to import, and customizes Python."""
    packages = folder / "packages"
    if not packages.exists():
        (packages / "torch").mkdir(parents=True)
        (packages / "torch" / "__init__.py").write_text('"""Stands for torch."""\n')
        counted = "import sys\nsys.customized = [*getattr(sys, 'customized', []), __name__]\n"
        (packages / "sitecustomize.py").write_text(counted)
        (packages / "usercustomize.py").write_text(counted)
    return {
        **clean_environment(),
        "PYTHONPATH": str(packages),
        "PYTHONDONTWRITEBYTECODE": "1",
        "FORCE_COLOR": "1",
        **more,
    }


def launched(folder: Path, **more: str) -> dict[str, str]:
    """The same with what `dftrace run` adds to it."""
    own = {"LAUNCH": "1", "LOG_FILE": str(folder / "out" / "t"), "AUTO_PARTS": PARTS}
    return environment(folder, **{f"DFTRACE_{name}": text for name, text in own.items()}, **more)


def ran(
    words: tuple[str | Path, ...], env: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """What a program did that was started in a folder."""
    return subprocess.run(
        [*map(os.fspath, words)],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
