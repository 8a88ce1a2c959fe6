"""Statistics of a device whose records come late: complete, in order, and of the right step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_sessions import Values, main_log, section, session, statistics_of
from late_rings import LateCopies, through_rings
from torch import nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.nonfinite import MARKS
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import quantisation_record
from dftrace_ai.inspect.numerics.plain import values_of_row
from dftrace_ai.inspect.numerics.record import NEUTRAL, final_values, record_of
from dftrace_ai.inspect.numerics.statistics import TENSOR_STATS

EIGHT = ["min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"]
DELAYED = "fp8_delayed_scaling_overflows%"
FP8 = [
    "underflows%",
    "overflows%",
    "mse",
    "fp8_current_scaling_underflows%",
    DELAYED,
    "scale_inv_max",
]
TENSORS = ["activation", "weight", "output", "gradient", "dgrad", "wgrad"]


def config(**schedule: Any) -> dict[str, Any]:
    """Statistics of all tensors of attached layers, and of explicit calls."""
    both = statistics_of(EIGHT, TENSORS, **schedule)
    explicit = {"enabled": True, "stats": EIGHT, "tensors": ["hidden"], **schedule}
    both["all"]["LogTensorStats"] = explicit
    return both


def with_fp8_statistics() -> dict[str, Any]:
    features = {
        "LogTensorStats": {"stats": ["min", "std"], "tensors": TENSORS},
        "LogFp8TensorStats": {"stats": [*FP8], "tensors": ["activation", "weight", "gradient"]},
    }
    return section(features)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def train(
    given: dict[str, Any],
    folder: Path,
    *,
    steps: int = 12,
    late_by: int | None = None,
    fp8: Any = None,
    explicit: bool = False,
    **of_ring: Any,
) -> tuple[Values, list[int], LateCopies | None]:
    """Train a network; return what was logged, and how much of it after each step."""
    logger = Values()
    after_step = []
    debug_api.initialize(given, log_dir=folder, statistics_logger=logger)
    try:
        copies = None if late_by is None else through_rings(late_by, **of_ring)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        debug_api.attach(model, fp8=fp8)
        for step in range(steps):
            optimizer.zero_grad()
            for micro_batch in range(2):
                x = torch.randn(4 + micro_batch, 6) * 10.0 ** (step % 5)
                x[0, :3] *= 1e-7
                y = model(x)
                if explicit:
                    debug_api.log_tensor_stats("net", tensor=y, tensor_name="hidden")
                y.square().mean().backward()
            optimizer.step()
            if copies is not None:
                copies.now += 1
            debug_api.step()
            after_step.append(len(logger.got))
    finally:
        debug_api.end_debug()
    return logger, after_step, copies


def assert_the_same(found: Values, expected: Values) -> None:
    """The same lines in the same order; numbers differ by what two ways of adding do."""
    assert [line[::2] for line in found.got] == [line[::2] for line in expected.got]
    for (name, value, iteration), (_, wanted, _) in zip(found.got, expected.got, strict=True):
        close = pytest.approx(wanted, rel=1e-5, abs=1e-6, nan_ok=True)
        assert value == close, (name, iteration)


@pytest.mark.parametrize("late_by", [0, 1, 3])
def test_late_records_are_logged_with_their_step_and_in_its_order(
    tmp_path: Path, late_by: int
) -> None:
    at_once, complete, _ = train(config(), tmp_path / "cpu")
    late, after_step, copies = train(config(), tmp_path / "late", late_by=late_by)
    assert_the_same(late, at_once)
    assert copies is not None
    if not late_by:
        assert after_step == complete
        return
    # Each step's come as many steps later; the last ones at the end, which waits.
    assert after_step == [0] * late_by + complete[:-late_by]
    assert copies.waits == late_by


def test_a_device_that_is_far_behind_is_waited_for_and_that_is_told(
    tmp_path: Path, traced: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    at_once, complete, _ = train(config(), tmp_path / "cpu")
    with traced() as recording:
        late, after_step, _ = train(config(), tmp_path / "late", late_by=1000, generations=3)
    assert_the_same(late, at_once)
    # Two steps are under way, the third waits for the first.
    assert after_step == [0, 0, *complete[:-2]]
    stalls = [event for event in recording.trace.events if event.name == "ring stall"]
    assert len(stalls) == 10
    warning, summary = (line for line in main_log(tmp_path / "late") if "waited for" in line)
    assert warning.startswith("WARNING")
    assert capfd.readouterr().err.count("waited for") == 1
    assert "10 times" in summary


def test_only_steps_that_are_due_take_a_place_in_the_ring(tmp_path: Path) -> None:
    schedule = {"freq": 5, "start_step": 2}
    at_once, _, _ = train(config(**schedule), tmp_path / "cpu", explicit=True)
    late, after_step, copies = train(
        config(**schedule), tmp_path / "late", explicit=True, late_by=2, generations=2
    )
    assert_the_same(late, at_once)
    assert {iteration for _, _, iteration in late.got} == {5, 10}
    # Steps in which nothing is due take in what has come meanwhile.
    assert after_step[:8] == [0] * 7 + [len(late.got) // 2]
    assert copies is not None
    assert copies.waits == 1


@pytest.mark.parametrize("fp8", [None, {"amax_history_len": 3}, "current"])
def test_statistics_of_8_bit_formats_are_those_of_the_cpu(tmp_path: Path, fp8: Any) -> None:
    given = with_fp8_statistics()
    if not isinstance(fp8, dict):
        given["all"]["transformer_engine"]["LogFp8TensorStats"]["stats"].remove(DELAYED)
    at_once, _, _ = train(given, tmp_path / "cpu", fp8=fp8)
    late, _, _ = train(given, tmp_path / "late", fp8=fp8, late_by=3)
    assert_the_same(late, at_once)
    of_fp8 = [value for name, value, _ in late.got if name.endswith("flows%")]
    assert any(value > 0 for value in of_fp8)


def test_counts_alone_need_no_error_of_the_cast(tmp_path: Path) -> None:
    keys = {"stats": ["underflows%", "overflows%"], "tensors": TENSORS}
    given = section({"LogFp8TensorStats": keys})
    at_once, _, _ = train(given, tmp_path / "cpu")
    late, _, _ = train(given, tmp_path / "late", late_by=1)
    assert_the_same(late, at_once)


def test_explicit_calls_return_values_at_once_and_log_in_turn(tmp_path: Path) -> None:
    at_once, _, _ = train(config(), tmp_path / "cpu", explicit=True)
    late, after_step, _ = train(config(), tmp_path / "late", explicit=True, late_by=1)
    assert_the_same(late, at_once)
    assert after_step[0] == 0
    with session(config(), tmp_path / "values") as values:
        copies = through_rings(1)
        debug_api.initialize_training_step(7)
        x = torch.randn(100) * 3 + 1
        returned = debug_api.log_tensor_stats("net", tensor=x, tensor_name="hidden")
        wanted = final_values(collect(x), EIGHT)
        assert list(returned) == EIGHT
        for stat, value in returned.items():
            assert value.dtype is torch.float32
            assert value.shape == ()
            assert float(value) == pytest.approx(wanted[stat], rel=1e-6), stat
        assert debug_api.log_tensor_stats("net", tensor=x[:0], tensor_name="hidden") == {}
        assert debug_api.log_tensor_stats("net", tensor=x, tensor_name="other") == {}
        debug_api.step()
        assert not values.found
        copies.now += 1
        debug_api.step()
        assert values["net_hidden_max", 7] == pytest.approx(float(x.max()))


def test_explicit_calls_that_give_the_iteration_need_no_step(tmp_path: Path) -> None:
    with session(config(), tmp_path) as values:
        copies = through_rings(2)
        for iteration in range(20):
            copies.now = iteration
            for value in (1.0, 2.0):
                debug_api.log_tensor_stats(
                    *("net", torch.full((3,), value + iteration), "hidden"), iteration=iteration
                )
        assert values.iterations("net_hidden_max") == list(range(17))
    assert values.iterations("net_hidden_max") == list(range(20))
    for iteration in range(20):
        assert values.found["net_hidden_max", iteration] == [1.0 + iteration, 2.0 + iteration]
    assert copies.waits == 3


def test_what_was_seen_before_a_model_is_detached_is_logged_when_it_comes(tmp_path: Path) -> None:
    with session(statistics_of(["max"], ["activation"]), tmp_path) as values:
        copies = through_rings(2)
        model = nn.Linear(2, 2)
        handle = debug_api.attach(model)
        model(torch.ones(1, 2))
        debug_api.step()
        model(torch.full((1, 2), 2.0))
        handle.detach()
        assert not values.found
        copies.now = 2
        debug_api.step()
        assert values.found == {("model_activation_max", 0): [1.0]}
        # That of the step in which it was detached comes as late as any other.
        copies.now = 4
        debug_api.step()
    assert values.found == {("model_activation_max", 0): [1.0], ("model_activation_max", 1): [2.0]}


def test_a_tensor_of_the_host_is_logged_after_those_of_a_device_that_were_seen_before(
    tmp_path: Path,
) -> None:
    logger = Values()
    debug_api.initialize(config(), log_dir=tmp_path, statistics_logger=logger)
    copies = through_rings(2, device="meta")
    model = network().to("meta")
    debug_api.attach(model)
    for _ in range(5):
        returned = debug_api.log_tensor_stats("net", torch.ones(3), "hidden")
        assert float(returned["l1_norm"]) == 3
        model(torch.empty(4, 6, device="meta"))
        copies.now += 1
        debug_api.step()
    debug_api.end_debug()
    iterations = [iteration for _, _, iteration in logger.got]
    assert iterations == sorted(iterations)
    assert [name for name, _, _ in logger.got].count("net_hidden_max") == 5


@pytest.mark.parametrize("fp8", [{"amax_history_len": 2}, "current", None])
def test_a_step_reads_no_number_of_the_device(tmp_path: Path, fp8: Any) -> None:
    """Tensors on `meta` have no numbers: whatever asks for one fails, as it would wait on a GPU."""
    given = with_fp8_statistics()
    if not isinstance(fp8, dict):
        given["all"]["transformer_engine"]["LogFp8TensorStats"]["stats"].remove(DELAYED)
    given["all"]["LogTensorStats"] = {"enabled": True, "stats": EIGHT, "tensors": ["hidden"]}
    with session(given, tmp_path) as values:
        copies = through_rings(1, device="meta")
        model = network().to("meta")
        debug_api.attach(model, fp8=fp8)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(4):
            optimizer.zero_grad()
            y = model(torch.empty(4, 6, device="meta"))
            returned = debug_api.log_tensor_stats("net", tensor=y, tensor_name="hidden")
            assert {value.device.type for value in returned.values()} == {"meta"}
            y.square().mean().backward()
            optimizer.step()
            copies.now += 1
            debug_api.step()
    assert not [line for line in main_log(tmp_path) if line.startswith("ERROR")]
    assert values.iterations("net_hidden_l2_norm") == [0, 1, 2, 3]
    assert values.iterations("model.2_dgrad_min") == [0, 1, 2, 3]
    assert values.iterations("model.0_gradient_mse") == [0, 1, 2, 3]


def test_nonfinite_values_are_marked_when_their_record_comes(tmp_path: Path, traced: Any) -> None:
    MARKS.reset()
    given = statistics_of(["max"], ["output"])
    with traced() as recording, session(given, tmp_path):
        copies = through_rings(2)
        model = nn.Linear(2, 2)
        debug_api.attach(model)
        for step in range(4):
            for micro_batch in range(2):
                bad = math.inf if (step, micro_batch) == (1, 1) else 1.0
                model(torch.tensor([[bad, 1.0]]))
            copies.now += 1
            debug_api.step()
    (mark,) = [event for event in recording.trace.events if event.cat == "nonfinite"]
    assert mark.name == "model:output"
    assert (mark.args["iteration"], mark.args["micro_batch"]) == (1, 1)
    assert mark.args["n_nan"] + mark.args["n_inf"] == 2


@pytest.mark.parametrize("late_by", [None, 1])
def test_indices_have_statistics_of_8_bit_formats_too(tmp_path: Path, late_by: int | None) -> None:
    features = {
        "LogFp8TensorStats": {"stats": ["underflows%", "mse"], "tensors": ["activation"]},
        "LogTensorStats": {"stats": ["max"], "tensors": ["activation"]},
    }
    with session(section(features), tmp_path) as values:
        if late_by is not None:
            through_rings(late_by)
        model = nn.Embedding(600, 2)
        debug_api.attach(model)
        model(torch.tensor([1, 599]))
        debug_api.step()
    assert values["model_activation_max", 0] == 599
    assert values["model_activation_underflows%", 0] == 0
    record = quantisation_record(torch.tensor([1.0, 599.0]), Format.E4M3, 448 / 599)
    expected = final_values(record, ["mse"])["mse"]
    assert values["model_activation_mse", 0] == pytest.approx(expected, rel=1e-4)


def test_tensors_that_have_no_statistics_do_not_end_the_training(tmp_path: Path) -> None:
    with session(statistics_of(["max"], ["activation"]), tmp_path) as values:
        through_rings(0)
        model = nn.Identity()
        model.weight = nn.Parameter(torch.ones(2))
        debug_api.attach(model)
        model(torch.ones(1, 2, dtype=torch.complex64))
        debug_api.step()
    assert not values.found
    assert any("complex" in line for line in main_log(tmp_path))


@pytest.mark.parametrize(
    "numbers",
    [
        [1.0, -2.0, 3.5],
        [4.0],
        [0.0, 0.0],
        [0.0, 1e-30, -1e30],
        [math.inf, 1.0],
        [-math.inf, 1.0],
        [math.inf, -math.inf, 0.0],
        [math.inf, -math.inf],
        [math.nan, 1.0, math.inf],
        [math.nan],
    ],
)
def test_values_made_on_a_device_are_those_of_the_host(numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=torch.float64)
    row = plain.row_of(x)
    found = {stat: float(value) for stat, value in values_of_row(row, TENSOR_STATS).items()}
    wanted = final_values(record_of(row.tolist()), TENSOR_STATS)
    assert found == pytest.approx(wanted, rel=1e-6, nan_ok=True)
    with pytest.raises(ValueError, match="mse"):
        values_of_row(row, ["mse"])


def test_no_elements_have_no_values_on_a_device() -> None:
    found = values_of_row(plain.neutral_row(torch.device("cpu")), TENSOR_STATS)
    assert all(math.isnan(value) for value in found.values())
    assert tuple(plain.neutral_row(torch.device("cpu")).tolist()) == pytest.approx(
        NEUTRAL, nan_ok=True
    )


def test_returned_values_are_those_of_the_call_whenever_they_are_looked_at(tmp_path: Path) -> None:
    """While the record is on its device, and after another one lies where it was."""
    debug_api.initialize(config(), log_dir=tmp_path)
    try:
        copies = through_rings(1, generations=2)
        returned = []
        for step in range(8):
            x = torch.arange(4.0) + step
            at_once, later = (debug_api.log_tensor_stats("net", x, "hidden") for _ in range(2))
            assert float(at_once["max"]) == 3.0 + step
            x.zero_()  # the record was made by the call
            returned.append((at_once, later))
            copies.now += 1
            debug_api.step()
        for step, (at_once, later) in enumerate(returned):
            assert isinstance(later, dict)
            assert list(later) == EIGHT
            assert len(later) == len(EIGHT)
            assert "max" in later
            assert float(later.get("min")) == step
            assert later == at_once
            assert {**later} == dict(later) == later.copy() == (later | {}) == ({} | later)
            assert "None" not in repr(later)
            assert all(value.dtype is torch.float32 for value in later.values())
            assert float(later.pop("mean")) == 1.5 + step
    finally:
        debug_api.end_debug()
