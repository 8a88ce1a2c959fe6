"""A wheel is installed where nothing was built, and the quick start is followed with it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import uplot
from docs.pages import DOCS, ROOT, blocks, quoted_examples, section

from .machines import LIBRARIES, TRY, Machine, built

MAPPED = """
import json, re
from pathlib import Path
import dftrace_ai
import dftrace_ai._native
for how in ("gzip", "zstd"):
    with dftrace_ai.tracing(log_file="out/" + how, compression=how), dftrace_ai.ai.compute.forward:
        pass
maps = Path("/proc/self/maps").read_text()
print(json.dumps({"module": dftrace_ai._native.__file__, "mapped": sorted(set(re.findall(r"/\\S+", maps)))}))
"""


@pytest.fixture(scope="session")
def wheel() -> Path:
    return built("wheel")


@pytest.fixture(scope="session")
def machine(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine") / "venv", wheel)


def test_the_quick_start_works_where_nothing_was_built(machine: Machine, tmp_path: Path) -> None:
    page = DOCS / "quick-start.md"
    (program,) = quoted_examples(page).values()
    (tmp_path / "training.py").write_text(program, encoding="utf-8")
    (named,) = machine.run(["python", "training.py", "out"], tmp_path).split()
    assert (tmp_path / named).exists()
    assert "101 events in 1 file" in machine.run(["dftrace", "summary", "out"], tmp_path)
    machine.run(["dftrace", "validate", "out"], tmp_path)
    machine.run(["python", "training.py", "off"], tmp_path, DFTRACE_ENABLE="0")
    assert not list(tmp_path.glob("off/*.pfw*"))
    rest = [
        b.text for b in blocks(page, "python") if b.text in section(page, "Where to begin and end")
    ]
    assert len(rest) == 2
    for block in rest:
        machine.run(["python", "-c", block], tmp_path)
    assert len(list(tmp_path.glob("out/*.pfw.gz"))) == 2


def test_it_does_what_a_release_asks_of_its_wheels(machine: Machine, tmp_path: Path) -> None:
    machine.run(["python", TRY], tmp_path)


def test_a_program_traces_itself_below_dftrace_run(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text('"""Stands for torch."""')
    program = "import torch\nfrom dftrace_ai import ai\nwith ai.compute.forward:\n    pass\n"
    (tmp_path / "plain.py").write_text(program)
    quiet = ["--set", "system_counters_s=none", "--parts", "steps"]
    machine.run(["dftrace", "run", "-o", "out", *quiet, "plain.py"], tmp_path)
    assert "1 event in 1 file" in machine.run(["dftrace", "summary", "out"], tmp_path)


def test_the_libraries_of_compression_are_inside_of_the_module(
    machine: Machine, tmp_path: Path
) -> None:
    told = json.loads(machine.run(["python", "-c", MAPPED], tmp_path))
    assert told["module"].startswith(str(machine.bin.parent))
    assert told["module"] in told["mapped"]
    names = [Path(path).name for path in told["mapped"]]
    assert not [n for n in names if n.startswith(LIBRARIES)]
    assert {p.suffix for p in tmp_path.glob("out/*")} == {".gz", ".zst"}


def test_a_wheel_is_small_and_says_what_it_runs_with(wheel: Path, tmp_path: Path) -> None:
    assert re.search(r"-manylinux_2_\d+_x86_64\.whl$|-manylinux_2_\d+_aarch64\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        # The page of `dftrace ui`, with uPlot, which is a third of it; and all the rest.
        page = sum(
            one.compress_size
            for one in archive.infolist()
            if one.filename.startswith("dftrace_ai/ui/static/")
        )
        assert page < 100_000
        # Half of that are recorder and reader, 120 kB what judges many ranks, 100 kB what samples
        # stacks and tells of them, 50 kB the kernels for GPUs, 300 kB what merges traces, makes some,
        # reads dumps, and reads with other machines, 60 kB stacks of all threads in dumps, packed
        # columns of long runs, formats in blocks and the plug-in of pytest, 30 kB settings of a
        # project, Markdown, metrics, columns that are set aside, and 40 kB the reader of samples, patterns
        # of arguments and plug-ins, 20 kB what is sent to OpenTelemetry, and 5 kB what stands in the
        # recorder's place and asks systems for what they call otherwise.
        assert wheel.stat().st_size - page < 2_880_000
        modules = sorted(n for n in archive.namelist() if n.endswith(".so"))
        archive.extractall(tmp_path, modules)
        metadata = next(n for n in archive.namelist() if n.endswith("/METADATA"))
        told = archive.read(metadata).decode()
        beside = {n for n in archive.namelist() if n.startswith("dftrace_ai/page/static/")}
        beside -= {"dftrace_ai/page/static/"}  # a folder is there by its name, too
    # What pages hold inside.
    kept = (ROOT / "dftrace_ai" / "page" / "static").iterdir()
    assert {f"dftrace_ai/page/static/{path.name}" for path in kept} == beside
    assert "Requires-Python: <3.15,>=3.10" in told
    needed = re.findall(r"^Requires-Dist: ([\w-]+)(.*)$", told, re.M)
    base = {name for name, rest in needed if "extra ==" not in rest}
    assert {"orjson", "pydantic", "typer"} <= base
    assert not {"duckdb", "numpy", "torch"} & base
    extra = {name for name, rest in needed if re.search(r"extra == .analysis.", rest)}
    assert extra == {"duckdb", "numpy"}
    names = [re.sub(r".*/(\w+)\..*", r"\1", module) for module in modules]
    assert names == ["_native", "_reader"]
    for name, module in zip(names, modules):
        shown = subprocess.run(
            ["nm", "--dynamic", "--defined-only", tmp_path / module],
            capture_output=True,
            text=True,
            check=True,
        )
        assert [line.split()[-1] for line in shown.stdout.splitlines()] == [f"PyInit_{name}"]
        sections = subprocess.run(
            ["readelf", "--section-headers", "--wide", tmp_path / module],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ".debug_info" not in sections.stdout


def test_uplot_is_beside_the_page_as_it_is_pinned_with_its_licence(
    machine: Machine, tmp_path: Path
) -> None:
    if why := uplot.place():
        pytest.skip(why)
    where = "import dftrace_ai; print(dftrace_ai.__path__[0])"
    page = Path(machine.run(["python", "-c", where], tmp_path).strip()) / "ui" / "static"
    found = {name: (page / name).read_bytes() for name in uplot.FILES}
    for name, (_, sha256) in uplot.FILES.items():
        assert hashlib.sha256(found[name]).hexdigest() == sha256, name
    assert b"The MIT License (MIT)" in found["uplot.LICENSE"]
    assert b"Copyright (c)" in found["uplot.LICENSE"]


def test_who_works_on_it_keeps_the_symbols() -> None:
    from dftrace_ai import _native

    assert shutil.which("readelf")
    sections = subprocess.run(
        ["readelf", "--section-headers", "--wide", _native.__file__],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ".debug_info" in sections.stdout
    assert ".symtab" in sections.stdout
