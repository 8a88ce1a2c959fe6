"""What a tracker has not taken when its run ends lies on disk, and is handed over once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import clean_environment
from safety.commands import invoke

from dftrace_ai.loggers.delivery import keeping
from dftrace_ai.loggers.records import (
    Alert,
    Artifact,
    HistogramRecord,
    ImageRecord,
    MeshRecord,
    MetricsRecord,
    ParamsRecord,
    Point,
    Record,
    TextRecord,
    VideoRecord,
)

from .cases import HERE, LIMIT_S, SOON_S, Case, Left, run_all
from .test_misbehaving_trackers import GIVEN, assert_unhurt, case

AT = Point(7, "epoch", 1_700_000_000.25)
ALL = list(map(str, [*range(20), 0]))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    cases: list[Case] = [
        case("log", "black_hole", in_process=False),
        case("log", "os_exit", in_process=False),
        case("begin", "raise_", in_process=False),
        case("begin", "raise_", in_process=True),
        case("log", "hang", in_process=True),
        case("begin", "black_hole", in_process=False),
    ]
    return run_all(cases, tmp_path_factory.mktemp("sending"))


@pytest.fixture(autouse=True)
def _interfaces_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def run_of(found: Left) -> Path:
    return found.folder / "runs" / "default" / "run"


def be_well(found: Left, how: str = "") -> None:
    (run_of(found) / "well").write_text(how)


NAMES = ["log-black_hole-apart", "log-os_exit-apart", "begin-raise_-apart", "begin-raise_-here"]


@pytest.mark.parametrize("name", [*NAMES, "log-hang-here"])
def test_what_is_left_is_handed_over_once(left: dict[str, Left], name: str) -> None:
    found = left[name]
    assert_unhurt(found)
    (kept,) = run_of(found).glob("unsent-nasty-*.lines")
    assert kept.stat().st_mode & 0o777 == 0o600
    ((untaken, given),) = found.lost()
    assert f"they are kept, and handed over by: dftrace runs --send {run_of(found)}" in found.stderr
    taken = [step for step in found.taken() if step.isdigit()]
    assert (len(taken), given) == (GIVEN - untaken, GIVEN)
    # As long as it errs nothing is handed over, and nothing lost.
    if name == "begin-raise_-apart":
        done = invoke("runs", "--send", found.folder / "runs")
        assert done.status == 1
        assert f"0 records of default/run handed over, {GIVEN} records left" in done.out
    be_well(found)
    done = invoke("runs", "--send", run_of(found))
    assert (done.status, done.out) == (
        0,
        f"nasty: {untaken} records of default/run handed over\n",
    ), done.err
    assert [step for step in found.taken() if step.isdigit()] == ALL
    assert found.taken()[-1] == "finished"
    again = invoke("runs", "--send", found.folder / "runs")
    assert again.out.startswith("nothing is left to hand over")
    assert [step for step in found.taken() if step.isdigit()] == ALL
    assert not list(run_of(found).glob("unsent-*"))


def test_who_hands_over_may_be_killed(left: dict[str, Left]) -> None:
    found = left["begin-black_hole-apart"]
    be_well(found, "slow")
    command = [sys.executable, "-m", "dftrace_ai.cli", "runs", "--send", str(run_of(found))]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**clean_environment(), "PYTHONPATH": path}
    until = time.monotonic() + SOON_S
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as sender:
        while len(found.taken()) < 3 and time.monotonic() < until:
            time.sleep(0.005)
        sender.send_signal(signal.SIGKILL)
    # Its tracker goes on with what it was given, and nobody else hands the same over meanwhile.
    until = time.monotonic() + LIMIT_S
    while (done := invoke("runs", "--send", run_of(found))).status:
        assert "is being handed over" in done.err
        assert time.monotonic() < until
    assert [step for step in found.taken() if step.isdigit()] == ALL
    assert not list(run_of(found).glob("unsent-*"))


def test_records_are_what_they_were() -> None:
    counts = HistogramRecord(
        "h", (0.0, 1.0, 2.5), (3, 4), 0.1, 2.4, 7.5, 9.25, 1, {0.5: 1.1, 0.9: 2.0}, AT
    )
    points = np.array([[0.0, 1.0, 2.0]], np.float32)
    mesh = MeshRecord("m", b"\0glb", points, np.zeros((0, 3), np.int32), None, AT)
    records: list[Record] = [
        MetricsRecord({"loss": 0.1, "odd": float("inf")}, AT),
        ParamsRecord({"lr": 1e-3, "net": {"png": [1, None, True, "ä"]}}, AT),
        *(counts, ImageRecord("i", b"\x89PNG", 4, 5, 3, "seen", AT)),
        VideoRecord("v", b"GIF89a", "gif", 2, 4, 5, 10.0, AT),
        *(TextRecord("t", "text\n", AT), Artifact("a", "/tmp/a", AT), Alert("t", "x", "error", AT)),
    ]
    assert [keeping.record_of(keeping.line_of(record)) for record in records] == records
    found = keeping.record_of(keeping.line_of(mesh))
    assert isinstance(found, MeshRecord)
    assert (found.name, found.glb, found.colors, found.at) == ("m", b"\0glb", None, AT)
    assert (found.vertices == points).all()
    assert found.vertices.dtype == np.float32
    assert found.faces.shape == (0, 3)
    nan = keeping.record_of(keeping.line_of(MetricsRecord({"x": float("nan")}, AT)))
    assert isinstance(nan, MetricsRecord)
    assert str(nan.values["x"]) == "nan"


def test_what_others_may_have_written_is_not_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "unsent-nasty-1-0.lines"
    path.write_text(json.dumps({"kind": keeping.MARK, "format": 1}))
    path.chmod(0o620)
    done = invoke("runs", "--send", tmp_path)
    assert done.status == 1
    assert "others may have written it" in done.err
    path.chmod(0o600)
    path.write_text("no head\n")
    assert "is damaged" in invoke("runs", "--send", tmp_path).err
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert "cannot be read" in invoke("runs", "--send", tmp_path).err


def test_what_is_kept_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from loggers.delivery.nasty import Nasty

    from dftrace_ai.loggers.trackers.base import RunFacts

    monkeypatch.setattr(keeping, "MOST_BYTES", 1000)
    facts = RunFacts("p", "r", tmp_path, tmp_path, options={"api_key": "hidden", "mode": "x"})
    unsent = keeping.Unsent("nasty", Nasty, facts)
    for step in range(100):
        unsent.keep(MetricsRecord({"loss": 0.5}, Point(step)))
    unsent.end("finished")
    assert 0 < unsent.kept < 100
    head, *lines = unsent.path.read_text().splitlines()
    assert len(lines) == unsent.kept + 1
    assert "hidden" not in head
    assert json.loads(head)["run"]["options"] == {"mode": "x"}
