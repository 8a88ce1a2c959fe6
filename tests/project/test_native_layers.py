"""The folders of the native core are its layers: held by reading the includes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import gpu_kernels

NATIVE = Path(__file__).resolve().parents[2] / "native"

# What the files of a layer may include, besides those of their own.
LAYERS = {
    "system": set(),
    "text": {"system"},
    "index": {"system", "text"},
    "deflating": {"system", "text", "index"},
    "stacks": {"system", "text"},
    "spool": {"system", "text"},
    "writing": {"system", "text", "index", "deflating", "spool"},
    "reading": {"system", "text", "index", "deflating", "spool", "writing"},
    "recording": {
        "system",
        "text",
        "index",
        "deflating",
        "stacks",
        "spool",
        "writing",
        "reading",
    },
    "tensor": {"system"},
}
# What reads traces becomes a module of its own, in which nothing records.
ALONE = {
    "reading/traces": {"reading/traces", "deflating", "index", "text"},
    "reading/documents": {"reading/documents", "reading/traces", "index", "text"},
    "reading/arrow": {"reading/arrow", "reading/traces", "index", "text"},
    "index": {"index", "text"},
}
# Read as they stand: how a thread of our own begins, and what systems call otherwise.
HEADERS_ALONE = {
    "dftrace/system/first_exception.hpp",
    "dftrace/system/read_at.hpp",
    "dftrace/system/signals_blocked.hpp",
}
# Longer files say in their first lines why they are "one subject".
MOST_LINES = 600
FIRST_LINES = 20
SUBJECT = "one subject"


def layer_of(path: Path) -> str | None:
    """The layer of a source or header of the core, by its path below native/; None for others."""
    if path.parts[:1] == ("src",):
        return path.parts[1]
    if path.parts[:2] == ("include", "dftrace"):
        return path.parts[2]
    return None


def wrong_includes(native: Path) -> list[str]:
    """What includes what it may not, a line each."""
    found = []
    for path in sorted(native.rglob("*.[ch]pp")):
        place = path.relative_to(native)
        layer = layer_of(place)
        text = path.read_text(encoding="utf-8")
        for_python = place.parts[0] in {"bindings", "bench"}
        if "Python.h" in text and not for_python:
            found.append(f"{place}: Python.h")
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text, re.MULTILINE):
            parts = name.split("/")
            if (native / "bindings" / name).exists() and not for_python:
                found.append(f"{place}: {name}")
            if layer is None:
                continue
            other = parts[1] if parts[0] == "dftrace" else parts[0]
            inside = parts[0] == "dftrace" or (native / "src" / name).exists()
            if inside and other != layer and other not in LAYERS[layer]:
                found.append(f"{place}: {name}")
            if parts[0] != "dftrace" and inside and other != layer:
                found.append(f"{place}: {name} is private to {other}")
    return found


def not_alone(native: Path) -> list[str]:
    """What parts that stand alone include of others."""
    found = []
    for part, allowed in ALONE.items():
        for root in ("src", "include/dftrace"):
            for path in sorted((native / root / part).glob("*.[ch]pp")):
                text = path.read_text(encoding="utf-8")
                for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.MULTILINE):
                    folder = str(Path(name).parent.relative_to("dftrace"))
                    if folder not in allowed and name not in HEADERS_ALONE:
                        found.append(f"{path.relative_to(native)}: {name}")
    return found


def too_large(native: Path) -> list[str]:
    """Files of too many lines whose first ones do not say why they are one subject."""
    found = []
    for path in sorted(native.rglob("*")):
        if path.suffix in {".cpp", ".hpp", ".py", ".cmake", ".txt"}:
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > MOST_LINES and SUBJECT not in " ".join(lines[:FIRST_LINES]):
                found.append(f"{path.relative_to(native)}: {len(lines)} lines")
    return found


def test_every_folder_of_the_core_is_a_layer() -> None:
    for root in (NATIVE / "src", NATIVE / "include" / "dftrace"):
        assert {path.name for path in root.iterdir()} <= set(LAYERS)
    assert {path.name for path in (NATIVE / "src").iterdir()} == set(LAYERS)


def test_no_layer_may_include_one_that_may_include_it() -> None:
    for layer, allowed in LAYERS.items():
        for below in allowed:
            assert LAYERS[below] < allowed, (layer, below)


def test_includes_point_one_way() -> None:
    assert wrong_includes(NATIVE) == []


def test_what_reads_traces_stands_alone() -> None:
    assert not_alone(NATIVE) == []


def test_no_folder_or_file_grows_too_large() -> None:
    assert too_large(NATIVE) == []


# Where it is planted, and what.
WRONG = [
    ("include/dftrace/spool/spool.hpp", '#include "dftrace/recording/session.hpp"'),
    ("src/tensor/kernels.cpp", '#include "dftrace/spool/spool.hpp"'),
    ("src/reading/live_spool.cpp", "#include <Python.h>"),
    ("tests/system/clock_test.cpp", "#include <Python.h>"),
    ("src/system/clock.cpp", '#include "python.hpp"'),
    ("src/recording/drain.cpp", '#include "tensor/number_formats.hpp"'),
]


def test_a_wrong_include_is_found(tmp_path: Path) -> None:
    native = tmp_path / "native"
    for folder in ("include", "src", "bindings", "tests/system"):
        shutil.copytree(NATIVE / folder, native / folder)
    for place, line in WRONG:
        path = native / place
        text = path.read_text(encoding="utf-8")
        path.write_text(f"{line}\n{text}", encoding="utf-8")
        name = re.sub(r'.*["<](.*)[">]', r"\1", line)
        assert f"{place}: {name}" in wrong_includes(native)
        path.write_text(text, encoding="utf-8")
    assert wrong_includes(native) == []


def test_a_part_that_does_not_stand_alone_is_found(tmp_path: Path) -> None:
    part = tmp_path / "src" / "reading" / "traces"
    part.mkdir(parents=True)
    part.joinpath("a.cpp").write_text('#include "dftrace/recording/session.hpp"\n')
    part.joinpath("b.cpp").write_text('#include "dftrace/text/json_check.hpp"\n#include <zstd.h>\n')
    assert not_alone(tmp_path) == ["src/reading/traces/a.cpp: dftrace/recording/session.hpp"]


def test_a_file_that_is_too_large_is_found(tmp_path: Path) -> None:
    long = tmp_path / "src" / "long.cpp"
    long.parent.mkdir()
    long.write_text("\n" * (MOST_LINES + 1), encoding="utf-8")
    assert too_large(tmp_path) == ["src/long.cpp: 601 lines"]
    long.write_text("// All of it: one subject.\n" + "\n" * MOST_LINES, encoding="utf-8")
    assert too_large(tmp_path) == []


def test_the_kernels_for_gpus_are_those_of_their_source() -> None:
    assert gpu_kernels.main(["--check"]) == ""


def test_all_that_the_kernels_for_gpus_are_made_of_is_known() -> None:
    """What changes them changes the hash in their first line."""
    for name in gpu_kernels.READ:
        text = (NATIVE / name).read_text(encoding="utf-8")
        before = text.split("#ifndef __CUDACC__\n#include", 1)[0]
        included = {
            root + found
            for found in re.findall(r'^#include "(.+)"', before, re.MULTILINE)
            for root in ("src/", "include/")
            if (NATIVE / (root + found)).exists()
        }
        assert included <= set(gpu_kernels.READ), name
