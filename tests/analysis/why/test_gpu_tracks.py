"""Events of torch.profiler as lines: its steps, and what the tracks of a GPU add to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dftrace_ai.analysis.why import Verdict, why

STEP_US = 10_000
START_US = 1_700_000_000_000_000
GPU = 7


Made = list[tuple[str, str, int, int, int]]


def profile(folder: Path, steps: int, spans: Made, around: Made | None = None) -> Verdict:
    """Writes steps that all hold the same spans: category, name, thread, start and length."""
    lines = ["["]
    for step in range(steps):
        at = START_US + step * STEP_US
        holds = around or [("user_annotation", f"ProfilerStep#{step}", 1, 0, STEP_US)]
        for cat, name, tid, start, length in [*holds, *spans]:
            event = {"name": name, "cat": cat, "pid": 1, "tid": tid, "ph": "X"}
            lines.append(json.dumps({**event, "ts": at + start, "dur": length}))
    path = folder / "profile.pfw"
    path.write_text("\n".join(lines) + "\n")
    return why([path])


HOST = [
    ("cpu_op", "aten::linear", 1, 100, 4000),
    ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 2, 4200, 4000),
    ("user_annotation", "Optimizer.step#SGD.step", 1, 8300, 1600),
]


WAITS = [("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")]


def shares(verdict: Verdict) -> dict[str, float]:
    return {part: round(time.share, 3) for part, time in verdict.parts.items() if time.share}


def test_another_thread_s_backward_is_the_step_s(tmp_path: Path) -> None:
    verdict = profile(tmp_path, 30, HOST)
    assert verdict.steps is not None
    assert (verdict.steps.found_by, verdict.steps.count) == ("step spans", 30)
    assert shares(verdict) == {"compute": 0.4, "backward": 0.4, "optimizer": 0.16, "none": 0.04}


def test_a_gpu_without_work_is_the_host_s_fault(tmp_path: Path) -> None:
    kernels = [("kernel", "sgemm", GPU, start, 500) for start in range(200, 9000, 1000)]
    verdict = profile(tmp_path, 30, [*HOST, *kernels])
    (finding,) = verdict.findings
    assert (finding.kind, finding.severity) == ("host-bound", "critical")
    assert verdict.parts["gpu"].share == pytest.approx(0.45)
    assert "the GPU (times are the host's)" not in verdict.unseen


def test_what_kernels_hide_is_no_time_of_a_step(tmp_path: Path) -> None:
    busy = [("kernel", "sgemm", GPU, 0, 7000)]
    tail = [("kernel", "ncclDevKernel_AllReduce", GPU + 1, 4000, 6000)]
    hidden = [("kernel", "ncclDevKernel_AllReduce", GPU + 1, 0, 6900)]
    verdict = profile(tmp_path, 30, [*HOST, *busy, *tail])
    (finding,) = verdict.findings
    assert finding.kind == "communication-bound"
    assert shares(verdict) == {"gpu": 0.7, "comm": 0.3}
    assert verdict.parts["comm"].hidden_ns == 30 * 3000 * 1000
    assert profile(tmp_path, 30, [*HOST, ("kernel", "sgemm", GPU, 0, 9900), *hidden]).verdict == (
        "compute-bound"
    )


def test_copies_that_the_gpu_waits_for_are_found(tmp_path: Path) -> None:
    spans = [
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", GPU, 0, 3000),
        ("kernel", "sgemm", GPU, 3000, 7000),
    ]
    (finding,) = profile(tmp_path, 30, [*HOST, *spans]).findings
    assert finding.kind == "transfer-bound"


def test_the_few_steps_of_a_profile_are_judged_where_it_is_clear(tmp_path: Path) -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    waiting = [("user_annotation", name, 1, 0, 4000), ("cpu_op", "aten::linear", 1, 4000, 5900)]
    verdict = profile(tmp_path, 6, waiting)
    (finding,) = verdict.findings
    assert (finding.kind, finding.confidence) == ("input-bound", "low")
    assert "only 5 steps were seen" in finding.what


def test_spans_with_a_time_on_the_device_are_tracks_of_a_gpu(tmp_path: Path) -> None:
    host = [
        *[("compute", "forward", 1, 100, 1000), ("compute", "backward", 1, 1200, 1000)],
        ("compute", "step", 1, 8300, 200),
    ]
    device = [
        *[("gpu.compute", "forward", GPU, 200, 2800), ("gpu.compute", "backward", GPU, 3000, 5000)],
        # They hold what is counted already, as a step of the host does.
        *[("gpu.pipeline", "step", GPU + 1, 0, 9900), ("gpu.checkpoint", "capture", GPU + 1, 1, 9)],
        *[("gpu.comm", "all_reduce", GPU + 2, 7000, 1500), ("gpu.device", "transfer", GPU, 0, 100)],
        ("gpu.other", "decode", GPU, 9000, 500),
    ]
    steps = [("pipeline", "step", 1, 0, STEP_US)]
    verdict = profile(tmp_path, 30, [*host, *device], steps)
    assert shares(verdict) == {
        "gpu": 0.83,
        "comm": 0.05,
        "transfer": 0.01,
        "forward": 0.01,
        "none": 0.1,
    }
    assert "the GPU (times are the host's)" not in verdict.unseen


def test_collectives_and_copies_within_an_interval_of_their_stream_are_no_computing(
    tmp_path: Path,
) -> None:
    host = [("compute", "forward", 1, 100, 1000), ("compute", "step", 1, 8300, 200)]
    device = [
        ("gpu.compute", "forward", GPU, 1000, 6000),
        *[("gpu.comm", "all_reduce", GPU, 2000, 2000), ("gpu.device", "transfer", GPU, 5000, 500)],
        # On another stream others compute meanwhile, which hides a part of it.
        ("gpu.compute", "step", GPU + 1, 3500, 1000),
    ]
    verdict = profile(tmp_path, 30, [*host, *device], [("pipeline", "step", 1, 0, STEP_US)])
    assert shares(verdict) == {
        "gpu": 0.4,
        "comm": 0.15,
        "transfer": 0.05,
        "forward": 0.09,
        "optimizer": 0.02,
        "none": 0.29,
    }


def test_a_gpu_that_is_seen_in_some_steps_only_is_not_judged(tmp_path: Path) -> None:
    kernels = [("kernel", "sgemm", GPU, 200, 500), ("kernel", "sgemm", GPU, 700, 8500)]
    path = tmp_path / "profile.pfw"

    def judged(steps: int, seen: int, spans: Made) -> Verdict:
        profile(tmp_path, steps, [*HOST, *spans])
        lines = path.read_text().splitlines()
        lost = START_US + seen * STEP_US
        kept = [one for one in lines[1:] if "kernel" not in one or json.loads(one)["ts"] < lost]
        path.write_text("\n".join([lines[0], *kept]) + "\n")
        return why([path])

    for seen in (2, 25):
        verdict = judged(32, seen, kernels)
        assert (verdict.verdict, verdict.findings) == ("abstained", ())
        (silent,) = verdict.abstained
        assert silent.why == (
            f"GPU events in {seen} of 32 steps: the profiler has lost them, or the GPU was not used"
        )
    # One that has little to do in each step is.
    assert judged(32, 32, kernels[:1]).verdict == "host-bound"
    assert judged(32, 32, kernels).verdict == "compute-bound"


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ([("kernel", "sgemm", GPU, at, 0) for at in (200, 900)], "64 of 64 kernels last 0 ns"),
        (
            [("kernel", "sgemm", GPU, at, length) for at, length in ((200, 800), (2000, 0))],
            "32 of 64 kernels last 0 ns",
        ),
        # As where the clock of a GPU is another one.
        ([("kernel", "sgemm", GPU, 60_000_000, 800)], "GPU events in no step"),
        ([("gpu_memcpy", "Memcpy HtoD", GPU, 200, 50)], "no kernel among GPU events"),
    ],
)
def test_a_gpu_whose_times_are_lost_is_not_judged(tmp_path: Path, spans: Made, told: str) -> None:
    verdict = profile(tmp_path, 32, [*HOST, *spans])
    assert (verdict.verdict, verdict.findings) == ("abstained", ())
    (silent,) = verdict.abstained
    assert silent.why.startswith(told)


@pytest.mark.parametrize("kept", [0, 26])
def test_of_a_torn_profile_the_gpu_is_judged_where_its_part_is_left(
    tmp_path: Path, kept: int
) -> None:
    """A profiler writes what the GPU did behind all that the host did."""
    host, gpu = [], []
    for step in range(32):
        at = START_US + step * STEP_US
        spans = [("user_annotation", f"ProfilerStep#{step}", 1, 0, STEP_US), *HOST]
        for cat, name, tid, start, length in (*spans, ("kernel", "sgemm", GPU, 200, 9600)):
            event = {"name": name, "cat": cat, "pid": 1, "tid": tid, "ph": "X"}
            event |= {"ts": at + start, "dur": length}
            (gpu if cat == "kernel" else host).append(json.dumps(event))
    text = ",".join([*host, *gpu[:kept], gpu[kept][:30]])
    path = tmp_path / "host.pt.trace.json"
    path.write_text(f'{{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{text}')
    verdict = why([path])
    if kept:
        # Up to the last kernel that is left all is there.
        (finding,) = verdict.findings
        assert (finding.kind, verdict.steps and verdict.steps.count) == ("compute-bound", kept)
        told = f"{path}: torn before the work of the GPU of the last {32 - kept} steps"
        assert any(note.startswith(told) for note in verdict.notes)
    else:
        assert (verdict.verdict, verdict.findings) == ("abstained", ())
        (silent,) = verdict.abstained
        assert silent.why.startswith("the profile is torn, and has no event of a GPU")


def test_all_that_is_not_annotated_is_named(tmp_path: Path) -> None:
    (finding,) = profile(tmp_path, 30, [("cpu_op", "aten::mm", 1, 100, 200)]).findings
    assert finding.kind == "not-annotated"
    assert finding.evidence["lacking"] == ["forward", "backward", "optimizer"]


def test_one_step_of_a_profile_is_told_with_its_parts(tmp_path: Path) -> None:
    busy = [("kernel", "sgemm", GPU, 0, 8000), HOST[2], ("cpu_op", "Optimizer.step#A", 1, 9910, 50)]
    verdict = profile(tmp_path, 1, [*HOST, *busy])
    assert verdict.verdict == "abstained"
    assert verdict.steps is not None
    assert (verdict.steps.count, verdict.steps.median_ns) == (1, STEP_US * 1000)
    assert shares(verdict)["gpu"] == 0.8
    # It may also be around a whole training.
    loop = [(f"{cat}", name, 1, at + 100, 90) for at in range(0, 9000, 300) for cat, name in WAITS]
    steps = profile(tmp_path, 1, loop).steps
    assert steps is not None
    assert (steps.found_by, steps.count) == ("loader waits", 30)
