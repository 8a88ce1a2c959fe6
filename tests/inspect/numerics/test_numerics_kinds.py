"""Tensors of unusual kinds: without memory of their own, of other classes, beyond fp32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch_features
from awkward_tensors import normal
from inspect_sessions import session, statistics_of
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.errors import InspectTypeError
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import fake_quantise, quantisation_record, quantisation_row
from dftrace_ai.inspect.numerics.record import Record, final_values, merge_all, record_of
from dftrace_ai.inspect.numerics.ring import Ring

EIGHT = ["min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"]


def same(found: Record | None, numbers: Tensor) -> None:
    assert found is not None
    assert found == pytest.approx(collect(numbers), nan_ok=True)


def freed(view: Callable[[Tensor], Tensor], left: int = 0) -> Tensor:
    """What sharded training leaves of a parameter between its uses: a shape without its memory."""
    tensor = view(torch.ones(40, 50))
    tensor.untyped_storage().resize_(left)
    return tensor


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: x,
    "a part": lambda x: x[3:],
    "transposed": lambda x: x.t()[2:],
    "strided": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(9, 50),
}


# Of the 8,000 bytes as many are left as a view may have by itself, and none of them are its own.
LAYOUTS_IN_PART: dict[str, Callable[[Tensor], Tensor]] = {
    "its end": lambda x: x[30:],
    "its end, transposed": lambda x: x[30:].t(),
    "its end, strided": lambda x: x[30:, ::2],
    "its last number": lambda x: x[39, 49],
    "its end, expanded": lambda x: x[39:].expand(9, 50),
}


@pytest.mark.parametrize(
    ("layout", "left"),
    [*((name, 0) for name in LAYOUTS), *((name, 5000) for name in LAYOUTS_IN_PART)],
)
def test_memory_that_was_freed_is_not_read(layout: str, left: int) -> None:
    tensor = freed({**LAYOUTS, **LAYOUTS_IN_PART}[layout], left)
    with pytest.raises(InspectTypeError, match="freed"):
        collect(tensor)
    with pytest.raises(InspectTypeError, match="freed"):
        fake_quantise(tensor, Format.E4M3, 1.0)
    with pytest.raises(InspectTypeError, match="freed"):
        quantisation_record(tensor, Format.E4M3, 1.0)
    ring: Ring[int] = Ring(torch.device("cpu"))
    with pytest.raises(InspectTypeError, match="freed"):
        ring.add(tensor)


def test_a_layer_without_its_weight_says_so_and_the_training_goes_on(tmp_path: Path) -> None:
    class Left(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(freed(LAYOUTS["a part"]))

        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    with session(statistics_of(["max"], ["weight", "output"]), tmp_path) as values:
        model = Left()
        debug_api.attach(model)
        model(torch.ones(3))
        debug_api.step()
        assert list(values.found) == [("model_output_max", 0)]
    log = "".join(path.read_text() for path in tmp_path.rglob("*.log"))
    assert log.count("memory of this tensor has been freed") == 1


def test_classes_that_keep_their_elements_are_refused() -> None:
    with FakeTensorMode():
        fake = torch.empty(5)
    kept = [fake, TwoTensor(torch.ones(3), torch.zeros(3)), torch.empty(5, device="meta")]
    for tensor in kept:
        with pytest.raises(InspectTypeError):
            collect(tensor)
    refused = []

    def look(x: Tensor) -> Tensor:
        for tensor in (x, x.t()):
            with pytest.raises(InspectTypeError, match="cannot be read"):
                collect(tensor)
            refused.append(tensor)
        return x.sum()

    torch.func.grad(look)(torch.ones(3, 4))
    torch.func.vmap(look)(torch.ones(2, 3, 4))
    assert len(refused) == 4


# Torch warns that its nested tensors may change.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_and_quantised_tensors_are_their_numbers() -> None:
    rows = [normal(30).reshape(3, 10), normal(20, 1).reshape(2, 10)]
    whole = torch.cat(rows)
    for layout in (torch.strided, torch.jagged):
        same(collect(torch.nested.nested_tensor(rows, layout=layout)), whole)
    apart = torch.nested.narrow(
        whole[None], 1, torch.tensor([1]), torch.tensor([2]), layout=torch.jagged
    )
    with pytest.raises(InspectTypeError, match="room"):
        collect(apart)
    quantised = torch.quantize_per_tensor(whole, 0.1, 3, torch.quint8)
    same(collect(quantised), quantised.dequantize())
    sparse = torch.eye(30).to_sparse()
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    kinds = [(quantised, quantised.dequantize()), (sparse, torch.eye(30)), (jagged, whole)]
    for tensor, numbers in kinds:
        wanted = quantisation_record(numbers, Format.E4M3, 3.0)
        assert quantisation_record(tensor, Format.E4M3, 3.0) == wanted
        row = quantisation_row(tensor, Format.E4M3, 3.0)
        assert row.tolist() == pytest.approx(wanted, nan_ok=True)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.usefixtures("one_process")
def test_what_a_collective_still_brings_is_waited_for() -> None:
    """Layers of a tensor-parallel model get such tensors."""
    from torch.distributed._functional_collectives import (
        AsyncCollectiveTensor,
        all_reduce,
    )
    from torch.distributed.device_mesh import init_device_mesh

    DTensor, Replicate, Shard = map(torch_features.from_dtensor, ("DTensor", "Replicate", "Shard"))
    numbers = normal(1000)
    on_its_way = all_reduce(numbers, "sum", dist.group.WORLD)
    assert type(on_its_way) is AsyncCollectiveTensor
    same(collect(on_its_way), numbers)
    mesh = init_device_mesh("cpu", (1,))
    sharded = DTensor.from_local(numbers, mesh, [Shard(0)])
    same(collect(nn.Parameter(sharded)), numbers)
    same(collect(sharded.redistribute(mesh, [Replicate()])), numbers)


def test_elements_at_any_address(instructions: str) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        x = (normal(70_001) + 2).to(dtype)
        memory = bytearray(x.nbytes + 3)
        memory[3:] = x.view(torch.uint8).numpy().tobytes()
        unaligned = torch.frombuffer(memory, dtype=dtype, offset=3)
        assert unaligned.data_ptr() % 2
        same(collect(unaligned), x)
        if dtype is not torch.float64:
            found = fake_quantise(unaligned, Format.E5M2, 2.0)
            assert torch.equal(found, fake_quantise(x, Format.E5M2, 2.0))


LARGE = {
    "spread": (normal(70_000).double() * 1e200, math.inf),
    "constant": (torch.full((70_000,), 1e200, dtype=torch.float64), 0.0),
    "largest": (torch.full((70_000,), 1.7e308, dtype=torch.float64), 0.0),
    "a few": (torch.cat([torch.full((5,), 1e180, dtype=torch.float64), normal(70_000)]), math.inf),
    "small beside an infinity": (
        torch.cat([normal(70_000), torch.tensor([math.inf])]).double(),
        math.nan,
    ),
}


@pytest.mark.parametrize("kind", LARGE)
def test_numbers_beyond_fp32(kind: str) -> None:
    """Their statistics are fp32 numbers, so that most are infinite; none is wrong."""
    x, deviation = LARGE[kind]
    record = collect(x)
    halves = [collect(part) for part in x.split(35_000)]
    assert record is not None
    assert halves[0] is not None
    assert halves[1] is not None
    rows = torch.stack([plain.row_of(part) for part in x.split(35_000)])
    empty = plain.neutral_row(x.device)[None]
    for one in (
        record,
        merge_all(halves),
        record_of(plain.row_of(x).tolist()),
        record_of(plain.merged_rows(torch.cat([empty, rows, empty])).tolist()),
    ):
        values = final_values(one, EIGHT)
        assert values["std"] == pytest.approx(deviation, nan_ok=True, abs=0)
        assert values["l1_norm"] == values["l2_norm"] == values["cur_amax"] == math.inf
        assert values["mean"] == math.inf * float(x.mul(2.0**-100).mean().sign())
        assert one[4:6] == (float(x.min()), float(x.max()))
    finite = x[x.isfinite()] * 2.0**-100
    assert record[1] * 2.0**-100 == pytest.approx(float(finite.mean()), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_format_and_device_are_the_users_own(dtype: torch.dtype) -> None:
    x = normal(2000)
    limits = {"scale": 1.7, "format": Format.E4M3}
    wanted, quantised = plain.row_of(x, **limits), plain.fake_quantise(x, Format.E4M3, 3.3)[0]
    torch.set_default_dtype(dtype)
    torch.set_default_device("meta")
    try:
        ring: Ring[int] = Ring(torch.device("cpu"))
        ring.add(x, **limits)
        ring.add_row(plain.neutral_row(x.device))
        ring.end_generation(0)
        found = ring.drain()[0].records[0]
        again = plain.fake_quantise(x, Format.E4M3, 3.3)[0]
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert found == pytest.approx(wanted.tolist(), rel=0, abs=0, nan_ok=True)
    assert torch.equal(again, quantised)


def test_a_ring_of_inference_serves_training() -> None:
    with torch.inference_mode():
        ring: Ring[int] = Ring(torch.device("cpu"))
        ring.add(torch.full((3,), 1.0))
    ring.add(torch.full((3,), 2.0))
    ring.add_row(plain.row_of(torch.full((3,), 3.0)))
    ring.end_generation(0)
    assert [record[1] for record in ring.drain()[0].records] == [1.0, 2.0, 3.0]
