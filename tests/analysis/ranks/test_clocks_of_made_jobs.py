"""Clocks of hosts by traces, held against the truth of made jobs: errors, jumps, orders of arrival."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from analysis.ranks.arrivals import MS, Found, S, job_of, orders_told
from safety.commands import invoke

from dftrace_ai.generating import Job, JobClocks, generate
from dftrace_ai.generating.hosts import hosts_of
from dftrace_ai.generating.job import Jump

SET_BACK = (Jump(1, 2 * S, 300_000), Jump(2, 3 * S, -800 * MS))
# Less than a collective takes.
SMALL = Jump(3, 1_368 * MS, -4_302_542)
APART = JobClocks(2.0, 50.0)


class Case(NamedTuple):
    """A job whose clocks are apart, and how far off an estimate of them may be, microseconds."""

    job: Job
    most_us: float


CASES = {
    "apart": Case(job_of(21, APART), 5),
    "set": Case(job_of(22, JobClocks(2.0, 50.0, SET_BACK),
                   "link:2:100", "slow-rank:9:6"), 5),
    "reference set": Case(job_of(117, JobClocks(2.0, 50.0, (Jump(0, 3 * S, -370 * MS), SMALL)),
                             "link:1:100", "slow-rank:13:5"), 5),
    "late": Case(job_of(24, JobClocks(2.0, 50.0, late_hosts=((2, 500_000),)), "slow-rank:9:2"), 505),
    "polled": Case(job_of(23, APART, "slow-rank:9:20", poll=True), 900),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def found(case: str, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return Found.of(CASES[case].job, tmp_path_factory.mktemp("made"))


def test_errors_are_those_that_are_told_and_all_jumps_are_found(case: str, found: Found) -> None:
    job, clocks, hosts = found.job, found.clocks, hosts_of(found.job)
    took = json.loads((found.folder / "truth.json").read_text())["took_ns"]
    times = np.linspace(took // 50, took * 49 // 50, 99).astype(np.int64)
    number = [int(one.host.removeprefix("node")) for one in clocks.hosts]
    usual = next(at for at, one in enumerate(clocks.hosts) if one.state == "reference")
    same = clocks.lines[usual].of(hosts[number[usual]].shown(times))
    for at, told in enumerate(clocks.hosts):
        jumps = [(jump.at_ns, jump.by_ns) for jump in job.clocks.jumps if jump.host == number[at]]
        assert told.jumps_ns == pytest.approx([by for _, by in jumps], abs=60_000)
        shown = hosts[number[at]].shown(times)
        twice = clocks.shown_twice(shown, np.full(len(shown), at))
        near = np.any([np.abs(times - moment) < 50 * MS for moment, _ in jumps] or [twice], axis=0)
        off = np.abs(clocks.lines[at].of(shown) - same)[~twice & ~near]
        assert off.max() <= min(CASES[case].most_us * 1000, told.certain_ns or 0)
        # Of a host that is always late this is not known, only that it may be so.
        assert off.max() <= (told.typical_ns or 0) + told.late_ns
        assert told.told() == "within 0 ns" if at == usual else told.state == "calibrated"


def test_no_order_of_arrivals_is_told_that_the_truth_contradicts(case: str, found: Found) -> None:
    told, wrong = orders_told(found)
    assert wrong == 0
    # Of 880, which are those that are clear beyond how late hosts may see each end.
    least = {"apart": 600, "set": 600, "reference set": 600, "late": 450, "polled": 600}
    assert told > least[case]


def test_clocks_that_are_known_less_well_than_asked_for_are_refused(tmp_path: Path) -> None:
    generate(Job(ranks=4, per_host=2, steps=60, clocks=APART), tmp_path / "out", jobs=1)
    for command in ("ranks", "whatif"):
        assert invoke(command, tmp_path / "out", "--max-error", "1ms").status == 0
        done = invoke(command, tmp_path / "out", "--max-error", "2us")
        assert (done.status, done.out) == (3, "")
        assert "1 clock not known to within 2us" in done.err
        assert "clock of node0001: within " in done.err
        certain = invoke(command, tmp_path / "out", "--max-error", "0.5ms", "--certain")
        assert (certain.status, certain.out) == (3, "")
    refused = invoke("ranks", tmp_path / "out", "--max-error", "soon")
    assert (refused.status, "'soon' is no length of time" in refused.err) == (2, True)


def test_a_rank_with_times_of_its_own_costs_the_others_nothing(tmp_path: Path) -> None:
    """A wall clock that was set between two starts, and times that are below 0: it is put among the others."""
    plain = ("--compression", "none", "--no-index", "--offset-s", "2")
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    for folder in (whole, moved):
        assert (
            invoke("generate", folder, "--ranks", 6, "--per-host", 3, "--steps", 40, *plain).status
            == 0
        )

    def later(found: re.Match[bytes]) -> bytes:
        return b'"ts":%d' % (int(found[1]) - 1_000_000_000)

    for rank in (0, 4):
        path = sorted(moved.glob("*.pfw"))[rank]
        path.write_bytes(re.sub(rb'"ts":(\d+)', later, path.read_bytes()))
    before, after = (json.loads(invoke("ranks", "--json", one).out) for one in (whole, moved))
    assert after["by_rank"] == before["by_rank"]
    offsets = {host: one["ns"] for host, one in after["clocks"]["offsets"].items()}
    told = {host: one["ns"] for host, one in before["clocks"]["offsets"].items()}
    assert offsets == {
        host: pytest.approx(told[host.partition(",")[0]] - 1000 * S * (", " in host), abs=100_000)
        for host in ("node0000", "node0000, rank 0", "node0001", "node0001, rank 4")
    }
    notes = [note for note in after["notes"] if "taken for a clock of its own" in note]
    told_of = {note.partition(" are far")[0].rpartition(" ")[2] for note in notes}
    assert told_of == {"0", "4"}
    assert "who arrives last across hosts" not in {one["what"] for one in after["abstained"]}
    shown = []
    for folder in (whole, moved):
        merged = invoke("merge", folder, "-o", tmp_path / "all.pfw", "--force")
        assert "clocks of" not in merged.err
        steps = re.findall(
            rb'"name":"step","cat":"pipeline",[^\n]*?"ts":(\d+)',
            (tmp_path / "all.pfw").read_bytes(),
        )
        shown.append(np.array(steps, np.int64))
    assert len(shown[0]) == 240
    assert np.abs(shown[0] - shown[1]).max() < 200  # microseconds
