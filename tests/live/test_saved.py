"""Snapshots as files: written, read, put together, and made up by somebody else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dftrace_ai.errors import TraceError
from dftrace_ai.live import Snapshot, read_snapshot, snapshot, snapshot_json
from live.made import NOW, NS, hidden, process, snapshot_of
from live.programs import dftrace


def saved(made: Snapshot, path: Path) -> Path:
    path.write_bytes(snapshot_json(made))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = snapshot_of(
        process(0, "pipeline.train", "compute.forward"),
        process(None, write_error="No space left on device", threads=[]),
        hidden=[hidden(3), hidden(None)],
        problems=["/dev/shm/x: not a spool"],
    )
    assert read_snapshot(saved(made, tmp_path / "a.json")) == made


def test_snapshots_of_two_hosts_make_one(tmp_path: Path) -> None:
    here = process(0, "comm.all_reduce", for_s=90.0)
    unseen = hidden(1)
    there = process(1, "data.item", for_s=95.0, host="node2", spool=unseen.spool)
    one = saved(snapshot_of(here, hidden=[unseen, hidden(2, "node3")]), tmp_path / "1.json")
    two = saved(
        replace(snapshot_of(there, hidden=[]), taken_on="node2", taken_ns=NOW + NS),
        tmp_path / "2.json",
    )
    both = snapshot([one, two])
    assert [(p.rank, p.host) for p in both.processes] == [(0, "node1"), (1, "node2")]
    assert [p.host for p in both.hidden] == ["node3"]
    assert both.taken_on == "node2"
    told = dftrace("stuck", one, two)
    assert told.status == 1, told.err
    assert told.out.splitlines() == [
        "rank 0 in comm.all_reduce for 90 s step 12",
        (
            "rank 1 in data.item for 95 s step 12  <- likely cause: the others wait for it "
            "in comm.all_reduce"
        ),
        "not visible from here: 1 process of rank 2: run on host node3",
    ]


def test_of_two_looks_at_a_process_the_newer_one_counts(tmp_path: Path) -> None:
    early = process(0, "compute.forward")
    late = replace(process(0, "compute.backward"), present_ns=NOW + NS)
    files = [
        saved(snapshot_of(late), tmp_path / "late.json"),
        saved(snapshot_of(early), tmp_path / "early.json"),
    ]
    for order in (files, files[::-1]):
        (seen,) = snapshot(order).processes
        assert seen.place[-1].label == "compute.backward"


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as raised:
        read_snapshot(path)
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "neither a directory nor a spool nor a snapshot"),
        (b"\x89PNG\r\n", "neither a directory nor a spool nor a snapshot"),
        (b"[1, 2]", "neither a directory nor a spool nor a snapshot"),
        (b"{", "neither a directory nor a spool nor a snapshot"),
        (b'{"a": ' + b"[" * 100_000, "neither a directory nor a spool nor a snapshot"),
        (b"{}", "no snapshot"),
        (b'{"kind": "dftrace verdict", "format": 1}', "no snapshot"),
        (b'{"kind": "dftrace snapshot", "format": 2}', "snapshot version 2 is not known"),
        (b'{"kind": "dftrace snapshot", "format": 1}', "damaged snapshot: taken_on: "),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert refusal(path).startswith(reason)


def changed(change: Callable[[dict[str, Any]], None]) -> bytes:
    value = json.loads(snapshot_json(snapshot_of(process(0, "pipeline.train"))))
    change(value)
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda s: s["processes"][0].update(pid=-1), "processes.0.pid"),
        (lambda s: s["processes"][0].update(pid="1"), "processes.0.pid"),
        (lambda s: s["processes"][0].update(state="asleep"), "processes.0.state"),
        (lambda s: s["processes"][0].update(rank=2**63), "processes.0.rank"),
        (lambda s: s["processes"][0]["threads"][0].update(covered_s=-0.5), "covered_s"),
        (lambda s: s["processes"][0]["threads"][0]["open"][0].update(args=[]), "args"),
        (lambda s: s["processes"][0].pop("host"), "processes.0.host"),
        (lambda s: s.update(hidden=None), "hidden"),
    ],
)
def test_damaged_values_are_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], place: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(changed(change))
    assert place in refusal(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), value=JSON)
def test_a_snapshot_with_any_value_replaced_is_refused_or_shown(
    tmp_path: Path, data: st.DataObject, value: Any
) -> None:
    from dftrace_ai.cli.live_view.page import page
    from dftrace_ai.cli.terminal import console
    from dftrace_ai.live import find_stuck
    from dftrace_ai.live.verdict_words import verdict_lines

    made = json.loads(
        snapshot_json(snapshot_of(process(0, "pipeline.train", "comm.send"), hidden=[hidden(1)]))
    )
    holder: Any = made
    for _ in range(data.draw(st.integers(1, 7))):
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(holder[key], (dict, list)) or not holder[key]:
            break
        last, holder = holder, holder[key]
        made_key = key
    else:
        holder, key = last, made_key
    holder[key] = value
    path = tmp_path / "x.json"
    path.write_text(json.dumps(made))
    try:
        seen = read_snapshot(path)
    except TraceError:
        return
    list(verdict_lines(find_stuck(seen, 10.0)))
    with (screen := console()).capture():
        for part in page(seen, 80, 24, coloured=True):
            screen.print(part)
    snapshot_json(seen)


def test_parents_that_go_in_a_circle_end_somewhere(tmp_path: Path) -> None:
    made = json.loads(snapshot_json(snapshot_of(process(0, "a.b", "c.d", "e.f"))))
    for span in made["processes"][0]["threads"][0]["open"]:
        span["parent"] = span["id"] % 3 + 1
    path = tmp_path / "x.json"
    path.write_text(json.dumps(made))
    (seen,) = read_snapshot(path).processes
    assert len(seen.place) <= 3
