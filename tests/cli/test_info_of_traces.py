"""What `dftrace info` says of traces, and `dftrace validate` as JSON; both as their schemas have it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
from analysis.trace_lines import TraceLines, small_trace
from safety.commands import invoke

SCHEMAS = Path(__file__).parents[2] / "schemas"


def checked(name: str, text: str) -> Any:
    value = json.loads(text)
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(value, schema)
    assert set(value) == set(schema["properties"])
    return value


def of_rank(rank: int, world_size: int) -> TraceLines:
    facts = {"rank": rank, "world_size": world_size, "cmdline": ["python", "train.py"]}
    base_us = 1_700_000_000_000_000
    trace = TraceLines(100 + rank, host="node-7", time_base_us=base_us, **facts)
    trace.span("forward", "compute", 1000, 50)
    return trace


def test_info_tells_whose_traces_are_and_how_they_ended(tmp_path: Path) -> None:
    whole, runs = of_rank(0, 4), of_rank(2, 4)
    whole.footer(dropped=3)
    whole.write(tmp_path / "out" / "a.pfw.gz")
    runs.write(tmp_path / "out" / "b.pfw.zst")
    (tmp_path / "out" / "n.pfw").write_text("hello")
    done = invoke("info", tmp_path / "out")
    assert done.status == 1
    first, second = (
        next(line for line in done.out.splitlines() if name in line).split()
        for name in ("a.pfw.gz", "b.pfw.zst")
    )
    moment = datetime.fromtimestamp(1_700_000_000).astimezone()
    words = f"rank 0 of 4, process 100 on node-7 {moment:%Y-%m-%d %H:%M:%S %z} finalize 50 ns 1"
    assert first[1 : 1 + len(words.split())] == words.split()
    assert first[-1] == "3"
    assert " ".join(second).count("cut off") == 1
    assert "2 files of 1 run, 1 event by their closing lines" in done.out
    told = done.err.splitlines()
    assert told[0].startswith(f"dftrace: skipped: {tmp_path}/out/n.pfw: not a trace file")
    assert any("b.pfw.zst: no closing line" in line for line in told)
    assert any(line.endswith("run 00ff: 2 ranks without a file: 1, 3") for line in told)
    found = checked("info", invoke("info", "--json", tmp_path / "out").out)
    (one, other) = found["files"]
    assert (one["rank"], one["state"], one["losses"]) == (0, "complete", {"dropped": 3})
    assert (other["events"], other["state"], other["ended"]) == (None, "cut off", None)
    assert other["bytes"] == (tmp_path / "out" / "b.pfw.zst").stat().st_size
    assert found["missing_ranks"] == {"00ff": [1, 3]}
    assert [Path(file["path"]).name for file in found["skipped"]] == ["n.pfw"]


def test_info_of_what_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "n.pfw").write_text("hello")
    for path in (tmp_path, tmp_path / "n.pfw", tmp_path / "missing"):
        done = invoke("info", path)
        assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)


def test_validate_as_json(tmp_path: Path) -> None:
    trace = small_trace()
    good = trace.write(tmp_path / "a.pfw")
    trace.lines.extend(["nonsense"] * 15)
    bad = trace.write(tmp_path / "b.pfw.gz")
    done = invoke("validate", "--json", good)
    assert (done.status, done.err) == (0, "")
    assert checked("validate", done.out)["fault_count"] == 0
    done = invoke("validate", "--json", "--limit", 4, good, bad)
    assert (done.status, done.err) == (1, "")
    found = checked("validate", done.out)
    assert found["fault_count"] == 30
    (first, second) = found["files"]
    assert (first["path"], first["lines"], first["events"]) == (str(good), 16, 10)
    assert (first["closed"], first["faults"]) == (True, [])
    assert (second["fault_count"], [fault["line"] for fault in second["faults"]]) == (
        30,
        [17, 17, 18, 18],
    )
