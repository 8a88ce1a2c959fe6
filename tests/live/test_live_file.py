"""What a process tells other hosts: the most that matters in the least that a network takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from printed_json import SCHEMAS

from dftrace_ai.run.ranks import host_of_groups, host_of_store, spans_hosts
from live.programs import program, until

DEEP = """
from contextlib import ExitStack
name = "n" * 200 + '"\\\\' + chr(0x1f642)
depth = threading.Barrier(31)

def stand(number):
    with ExitStack() as stack:
        for level in range(100 if number == 0 else 3):
            stack.enter_context(ai.compute.forward.derive(f"{number} {level} {name}"))
        if number == 0:
            stack.enter_context(ai.dataloader.fetch)
        depth.wait()
        if number:
            threading.Event().wait()
        done()

dftrace_ai.initialize(rank=3, world_size=8, lines_hz=200)
for number in range(1, 31):
    threading.Thread(target=stand, args=(number,), daemon=True).start()
stand(0)
"""


def told_in(folder: Path) -> dict[str, Any]:
    """What the file says, which follows its schema; nothing before it is there."""
    path = next(folder.glob("*.live"), None)
    if path is None:
        return {"threads": [], "threads_left_out": 0}
    text = path.read_bytes()
    assert len(text) <= 2048
    found: dict[str, Any] = json.loads(text)
    schema = json.loads((SCHEMAS / "live.schema.json").read_text())
    jsonschema.validate(found, schema)
    return found


def _is_whole(told: dict[str, Any]) -> bool:
    """Whether it was written after all threads had come to where they stand."""
    main, *others = told["threads"] or [{"open": []}]
    there = len(others) + told["threads_left_out"] == 30
    return there and bool(main["open"]) and main["open"][-1]["name"] == "fetch"


def test_more_than_has_room(tmp_path: Path) -> None:
    """Of the main thread the innermost spans are told, and of how many threads nothing is."""
    with program(DEEP, tmp_path, DFTRACE_LIVE_FILE_S="0.05"):
        told = until(lambda: told_in(tmp_path), _is_whole)
    main, *others = told["threads"]
    assert main["tid"] == told["pid"]
    assert main["depth"] == 101
    assert main["open"][-1]["name"] == "fetch"
    assert others
    assert told["threads_left_out"]


def test_where_python_stands(tmp_path: Path) -> None:
    """As it is sampled: the innermost frames, and since when."""
    source = """
    dftrace_ai.initialize(rank=3, world_size=8, lines_hz=200)

    def receives():
        with ai.comm.receive:
            done()

    receives()
    """
    with program(source, tmp_path, DFTRACE_LIVE_FILE_S="0.05"):
        # What it tells first may be where it stood before.
        told = until(
            lambda: told_in(tmp_path),
            lambda told: any(
                "receives" in names_in(one) and one["open"] for one in told["threads"]
            ),
        )
    (main,) = told["threads"]
    assert [span["name"] for span in main["open"]] == ["receive"]


def names_in(thread: dict[str, Any]) -> list[str]:
    """The functions that it stands in."""
    return [function for function, *_ in thread.get("stack", ())]


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "16", "LOCAL_RANK": "3"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "16", "SLURM_LOCALID": "3", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("environ", "several"),
    [
        ({}, False),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2"}, True),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "16", "GROUP_WORLD_SIZE": "1"}, False),
        # One of its hosts has an allocation of several, and uses one.
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "16", "SLURM_NNODES": "2"}, False),
        (TORCHRUN, False),
        # Spawned by hand, where nobody counts hosts.
        (TORCHRUN | {"MASTER_ADDR": "node0"}, True),
        (TORCHRUN | {"MASTER_ADDR": "127.0.0.1"}, False),
        (TORCHRUN | {"MASTER_ADDR": "node0", "LOCAL_WORLD_SIZE": "16"}, False),
        (SLURM | {"MASTER_ADDR": "node0", "SLURM_NNODES": "1"}, False),
        (SLURM | {"SLURM_NNODES": "4"}, True),
        (SLURM | {"SLURM_NNODES": "4", "SLURM_STEP_NUM_NODES": "1"}, False),
        (SLURM | {"SLURM_NNODES": "many"}, False),
        ({"SLURM_NNODES": "4"}, False),
    ],
)
def test_which_jobs_have_several_hosts(environ: dict[str, str], several: bool) -> None:
    assert spans_hosts(environ) is several


@pytest.mark.parametrize("attribute", ["host", "underlying_store"])
def test_a_store_that_cannot_be_asked_for_a_host_has_none(attribute: str) -> None:
    dist = pytest.importorskip("torch.distributed")
    pytest.importorskip("torch.testing._internal.distributed.fake_pg")

    def fails(_: object) -> str:
        raise KeyError("no host")

    store = type("Store", (dist.Store,), {attribute: property(fails)})()
    dist.init_process_group("fake", rank=1, world_size=2, store=store)
    try:
        assert host_of_groups() == ""
    finally:
        dist.destroy_process_group()


def test_where_ranks_meet_is_known_by_their_store() -> None:
    dist = pytest.importorskip("torch.distributed")
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    assert host_of_store(dist.PrefixStore("a", dist.PrefixStore("b", store))) == "127.0.0.1"
    assert host_of_store(dist.PrefixStore("a", dist.HashStore())) == ""
    assert spans_hosts({}, 4, "10.0.0.7")
    assert not spans_hosts({"MASTER_ADDR": "localhost"}, 4, "10.0.0.7")
    assert not spans_hosts({}, 1, "10.0.0.7")
