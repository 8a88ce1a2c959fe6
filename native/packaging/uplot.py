"""uPlot beside the page of `dftrace ui`, in every build: python native/packaging/uplot.py.

It draws the page's lines (MIT, no dependencies), lies in no commit, and npm fetches it by its name.
Whoever installs a wheel, or builds from an sdist, has it inside, and needs no npm and no network.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

PACKAGE: Final = "uplot@1.6.32"
SHA512: Final = (
    "2883159c6ebccefbb95d751b0b82d010f9e1c0ec41b8bc96d401eda66e882935"
    "c89a46cb824332fa369b8cb8122cc6ac36e186cd09bf7a9ded3a4c93c6989023"
)
"""Of the package, as npm packs it."""

FILES: Final = {
    "uplot.js": (
        "package/dist/uPlot.iife.min.js",
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    "uplot.css": (
        "package/dist/uPlot.min.css",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
    "uplot.LICENSE": (
        "package/LICENSE",
        "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    ),
}
"""What is installed: the place of each file in the package, and its SHA-256."""

PAGE: Final = Path(__file__).parents[2] / "dftrace_ai" / "ui" / "static"

# Without a network npm gives up at once; behind one that answers nothing, after this.
MOST_SECONDS: Final = 60


def place(page: Path = PAGE) -> str:
    """Put uPlot's files beside a page, if they are not there; return why not, else ""."""
    try:
        if all(_is_pinned(page / name) for name in FILES):
            return ""
        for name in FILES:
            # What is not as it is pinned is installed by nobody.
            (page / name).unlink(missing_ok=True)
        packed = _fetched()
        if hashlib.sha512(packed).hexdigest() != SHA512:
            return f"{PACKAGE} was not taken: what npm gave has another SHA-512 than is pinned"
        page.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for name, (member, _) in FILES.items():
                file = archive.extractfile(member)
                assert file is not None, member  # noqa: S101  # the hash says what is in it
                (page / name).write_bytes(file.read())
    except (OSError, subprocess.SubprocessError) as error:
        return f"{PACKAGE} was not fetched: {_said(error)}"
    return ""


def place_or_tell(page: Path = PAGE) -> bool:
    """Put uPlot's files beside a page, or say on one line that the build goes on without them."""
    if why := place(page):
        print(
            f"the page of `dftrace ui` goes without plots of lines: {why}; where there are npm and "
            "a network: python native/packaging/uplot.py",
            file=sys.stderr,
            flush=True,
        )
    return not why


def _is_pinned(path: Path) -> bool:
    return path.is_file() and (hashlib.sha256(path.read_bytes()).hexdigest() == FILES[path.name][1])


def _fetched() -> bytes:
    """Return the package, from wherever this machine's npm has packages from."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--silent", "--ignore-scripts", "--fetch-retries=0"]
        subprocess.run(
            ["npm", "pack", *options, PACKAGE],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=MOST_SECONDS,
        )
        return next(iter(Path(folder).glob("*.tgz")), Path(folder) / "uplot.tgz").read_bytes()


def _said(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, FileNotFoundError) and error.filename == "npm":
        return "there is no npm"
    return str(error)


if __name__ == "__main__":
    sys.exit(not place_or_tell())
