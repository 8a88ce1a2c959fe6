"""uPlot is what is pinned, wherever a build has it from; without npm the build goes on and says so."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import uplot
from conftest import clean_environment
from docs.pages import ROOT

SDIST = "import sys, build_backend; print(build_backend.build_sdist(sys.argv[1]))"


def npm(folder: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """Make `npm` what does this, in place of all programs."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "npm").write_text(f"#!/bin/sh\n{does}\n")
    (tools / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))


def packed(folder: Path, licence: bytes) -> Path:
    """A package with files of the right names."""
    with tarfile.open(folder / "package.tgz", "w:gz") as archive:
        for member, _ in uplot.FILES.values():
            info = tarfile.TarInfo(member)
            info.size = len(licence)
            archive.addfile(info, io.BytesIO(licence))
    return folder / "package.tgz"


def test_a_build_goes_on_without_npm_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "static"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not uplot.place_or_tell(page)
    (told,) = capfd.readouterr().err.splitlines()
    assert told.startswith("the page of `dftrace ui` goes without plots of lines: uplot@1.6.32 was")
    assert "there is no npm; where there are npm and a network: python native/" in told
    npm(tmp_path, monkeypatch, "echo no network >&2; exit 1")
    assert "returned non-zero exit status 1" in uplot.place(page)
    npm(tmp_path, monkeypatch, "exit 0")
    assert "No such file" in uplot.place(page)
    assert not page.exists()


def test_a_package_that_is_not_the_pinned_one_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "static"
    page.mkdir()
    (page / "uplot.js").write_text("of yesterday")
    archive = packed(tmp_path, b"something else")
    npm(tmp_path, monkeypatch, f"/bin/cp {archive} x.tgz")
    assert "another SHA-512 than is pinned" in uplot.place(page)
    assert not list(page.iterdir())


def test_the_pinned_package_is_taken_and_then_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, text = tmp_path / "static", b"MIT"
    archive = packed(tmp_path, text)
    monkeypatch.setattr(uplot, "SHA512", hashlib.sha512(archive.read_bytes()).hexdigest())
    own = {n: (member, hashlib.sha256(text).hexdigest()) for n, (member, _) in uplot.FILES.items()}
    monkeypatch.setattr(uplot, "FILES", own)
    npm(tmp_path, monkeypatch, f"/bin/cp {archive} x.tgz")
    assert uplot.place(page) == ""
    assert {p.name: p.read_bytes() for p in page.iterdir()} == dict.fromkeys(own, text)
    npm(tmp_path, monkeypatch, "exit 1")
    assert uplot.place(page) == ""


def test_an_sdist_has_it_inside(tmp_path: Path) -> None:
    if why := uplot.place():
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-c", SDIST, str(tmp_path)],
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT / "native" / "packaging")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.iterdir())) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"dftrace_ai/ui/static/{name}" for name in uplot.FILES} <= inside
    assert "native/packaging/uplot.py" in inside
