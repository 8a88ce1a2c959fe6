"""Environments in which a wheel is installed, and nothing was built."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import clean_environment
from docs.pages import ROOT

from dftrace_ai import __version__

TRY = str(Path(__file__).with_name("try_wheel.py"))
LIBRARIES = ("libdeflate", "libzstd")
HIDDEN = (
    *("/usr/include/libdeflate.h", "/usr/include/zstd.h"),
    *(f"/usr/lib/*/{library}.{end}" for library in LIBRARIES for end in ("a", "so*")),
)
# Ours is a mount namespace, in which an empty file lies over each.
HIDE = 'for path in $HIDDEN; do mount --bind /dev/null "$path" || exit 99; done; exec "$@"'


def built(folder: str) -> Path:
    """The wheel of this version and interpreter, as it would be published, in a folder of `build`."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    found = sorted((ROOT / "build" / folder).glob(f"*-{__version__}-{tag}-{tag}-*.whl"))
    if not found:
        pytest.skip("no wheel is built; make test-wheel builds it")
    (one,) = found
    return one


class Machine:
    """An environment with the wheel, the packages that it needs, and no library of compression."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / "bin"
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python")]
        subprocess.run(
            [*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True
        )
        (packages,) = folder.glob("lib/python*/site-packages")
        # Below what the wheel has installed. Of an editable installation nothing is found this way.
        others = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "others.pth").write_text("\n".join(others), encoding="utf-8")
        self.hidden = [str(p) for name in HIDDEN for p in Path("/").glob(name[1:])]
        may = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
        self.hide = ["unshare", "--mount", "sh", "-c", HIDE, "sh"] if may.returncode == 0 else []

    def finished(
        self, command: Sequence[str], folder: Path, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """How a program there ended, and what it printed."""
        return subprocess.run(
            [*self.hide, str(self.bin / command[0]), *command[1:]],
            cwd=folder,
            env={**clean_environment(), "HIDDEN": " ".join(self.hidden), **env},
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, command: Sequence[str], folder: Path, **env: str) -> str:
        """What a program there prints; it must end well."""
        done = self.finished(command, folder, **env)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout
