"""Tensors that cannot be asked for what an event tells of them: that costs the argument alone."""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from conftest import Traced
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.checkpoint.api import CheckpointException
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

import dftrace_ai
from dftrace_ai.integrations.auto import Auto

ai = dftrace_ai.ai


class Moved:
    """A tensor that says that it lies on a device."""

    device = torch.device("cuda", 0)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def move(tensor: Any, *_: Any, **__: Any) -> Moved:
    return Moved(tensor)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that says it was built for GPUs, and moves to one that nobody sees."""
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    for name in ("to", "cuda", "cpu"):
        monkeypatch.setattr(torch.Tensor, name, move)


@pytest.fixture(scope="module")
def tensors() -> Iterator[dict[str, Any]]:
    """One of each kind, and the group that some of them need."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield {kind: make() for kind, make in TENSORS.items()}
    dist.destroy_process_group()


def moves(tensor: Any, _: Path) -> Any:
    holder = nn.Linear(1, 1)
    holder.weight = holder.bias = None  # type: ignore[assignment]
    holder.register_buffer("adjacency", tensor)
    moved = [
        tensor.to("cuda"),
        tensor.cuda(),
        tensor.cpu(),
        holder.to("cuda")._buffers["adjacency"],
    ]
    return [type(one).__name__ for one in moved]


def saves(tensor: Any, folder: Path) -> Any:
    torch.save({"one": tensor}, folder / "one.pt")
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    buffer.seek(0)
    return type(torch.load(buffer, weights_only=False)).__name__


def saves_safely(tensor: Any, folder: Path) -> Any:
    safetensors.torch.save_file({"one": tensor}, folder / "one.safetensors")
    with safetensors.safe_open(folder / "one.safetensors", framework="pt") as file:
        return file.get_tensor("one").shape


def saves_shards(tensor: Any, folder: Path) -> Any:
    dcp.save({"one": tensor}, checkpoint_id=folder / "shards")
    return len([*(folder / "shards").iterdir()])


def reduces(tensor: Any, _: Path) -> Any:
    dist.all_reduce(tensor)


def broadcasts(tensor: Any, _: Path) -> Any:
    dist.broadcast(tensor, 0)


def loads(tensor: Any, _: Path) -> Any:
    batches = DataLoader([tensor, tensor], batch_size=2, collate_fn=lambda items: items)
    return [[type(one).__name__ for one in batch] for batch in batches]


class Passing(nn.Linear):
    def forward(self, x: Any) -> Any:
        return x


def computes(tensor: Any, _: Path) -> Any:
    return type(Passing(1, 1)(tensor)).__name__


def learns(tensor: Any, _: Path) -> Any:
    weight = nn.Parameter(torch.eye(4))
    weight.grad = tensor
    torch.optim.SGD([weight], lr=0.5).step()
    return weight.detach().tolist()


def annotates(tensor: Any, _: Path) -> Any:
    with ai.compute.forward(value=tensor, many=[tensor, {"in": tensor}]):
        ai.compute.backward.update(value=tensor)
        with ai.compute.backward:
            ai.instant("value", args={"value": tensor})
    ai.compute.backward.reset()


PARTS: dict[str, tuple[Callable[[Any, Path], Any], list[str]]] = {
    "moves": (moves, ["transfer"] * 4),
    "saves": (saves, ["capture", "capture", "restart"]),
    "saves safely": (saves_safely, ["capture", "restart"]),
    "saves shards": (saves_shards, ["capture"]),
    "reduces": (reduces, ["all_reduce"]),
    "broadcasts": (broadcasts, ["bcast"]),
    "loads": (loads, ["fetch.iter", "item", "item", "preprocess.collate"]),
    "computes": (computes, ["forward"]),
    "learns": (learns, ["step"]),
    "annotates": (annotates, ["backward", "forward"]),
}
SIZED = {"moves", "reduces", "broadcasts"}


# Torch lists in them what there is, and we are; and whole tracebacks.
LISTING = {"NotImplementedError", "CheckpointException"}


def outcome(part: Callable[[Any, Path], Any], kind: str, tensor: Any, folder: Path) -> Any:
    """What comes of it, without what is another each time."""
    folder.mkdir(parents=True)
    with ai.other(args={"kind": kind}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return part(tensor, folder)
        except (Exception, CheckpointException) as error:  # whatever it is, it has to be the same
            name, said = type(error).__name__, str(error).replace(str(folder), "")
            return name, None if name in LISTING else re.sub(r"0x[0-9a-f]+|\bj\d+", "", said)


@pytest.mark.parametrize("part", PARTS)
def test_the_training_goes_on_as_without(
    traced: Traced,
    auto: Auto,
    tmp_path: Path,
    tensors: dict[str, Any],
    part: str,
    request: pytest.FixtureRequest,
) -> None:
    """What comes of it is the same; each span is there, has ended, and lacks its size alone."""
    if part == "moves":
        request.getfixturevalue("devices")
    call, names = PARTS[part]

    def outcomes(place: str) -> dict[str, Any]:
        return {
            kind: outcome(call, kind, tensor, tmp_path / place / kind)
            for kind, tensor in tensors.items()
        }

    without = outcomes("without")
    with traced(perfetto=False) as run:
        auto()
        below = outcomes("with")
        auto.remove()
    assert below == without
    assert not run.trace.of("B")
    blocks = {one.args["kind"]: one for one in run.trace.named("other")}
    assert blocks.keys() == TENSORS.keys()
    for kind, block in blocks.items():
        spans = [
            one
            for one in run.trace.spans
            if one.name in names
            and one.cat != "pipeline"
            and block.ts_ns <= one.ts_ns
            and one.end_ns <= block.end_ns
        ]
        found, wanted = Counter(one.name for one in spans), Counter(names)
        if isinstance(below[kind], tuple):
            assert found <= wanted, kind
        elif kind == "meta" and part == "moves":
            assert not found  # from nowhere
        else:
            assert found == wanted, kind
        if part in SIZED:
            assert {one.args.get("bytes") for one in spans} <= {BYTES[kind]}, kind
        if part == "moves":
            assert {one.args.get("direction") for one in spans} <= {"cpu->cuda", None}, kind


class Answerless:
    """Raises at whatever it is asked that its work does not need."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("it does not say")

    __eq__ = __ne__ = __bool__ = __len__ = __str__ = __format__ = _raise
    __hash__ = None  # type: ignore[assignment]


class Layer(Answerless, nn.Module):
    """Of modules torch asks more: its own methods are here."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.inner(x)

    named_modules = modules = children = named_children = Answerless._raise


class Closed(Layer):
    @property
    def _parameters(self) -> Any:
        raise RuntimeError("it does not say")

    @_parameters.setter
    def _parameters(self, _: Any) -> None:
        pass

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, x: Any) -> Any:
        return x


class Endless(Answerless):
    """A sampler that stands for anything: it has a sampler, and that one has one."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    __len__ = Answerless._raise


class Target(Answerless, io.BytesIO):
    name = property(Answerless._raise)


class Place(Answerless):
    def __init__(self, path: Path) -> None:
        self.asked, self.path = 0, path

    def __fspath__(self) -> str:
        self.asked += 1
        return str(self.path)


def of_layers(_: Path) -> Any:
    model = nn.Sequential(Layer(), nn.Sequential(Layer()))
    return [model(torch.ones(2)).shape, Closed()(torch.ones(2)).tolist()]


def of_samplers(_: Path) -> Any:
    loader = DataLoader(range(4), sampler=Endless(), batch_size=2)  # type: ignore[arg-type]
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    for batch in loader:
        model(batch[:1].float()).sum().backward()
        optimizer.step()
    return sum(1 for _ in loader)


def of_places(folder: Path) -> Any:
    torch.save(1, Target())
    try:
        torch.save(1, Place(folder / "one.pt"))
    except Exception as error:  # noqa: BLE001 - torch may ask, and so it ends without us
        return type(error).__name__
    return (folder / "one.pt").exists()


def of_files(folder: Path) -> Any:
    days = np.arange(6).astype("datetime64[D]")
    days.tofile(folder / "days")
    with (folder / "days").open("rb", buffering=0) as file:
        size = file.readinto(bytearray(16))
    return size, len(np.fromfile(folder / "days", days.dtype))


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (of_layers, {"forward": 2, "forward.0": 1, "forward.1": 1}),
        (of_samplers, {"fetch.iter": 4, "forward": 2, "backward": 2, "step": 4, "epoch": 1}),
        (of_places, {"capture": 2}),
        (of_files, {"data.io.open": 3, "data.io.read": 2, "data.io.close": 3}),
    ],
)
def test_objects_that_do_not_answer(
    traced: Traced,
    auto: Auto,
    tmp_path: Path,
    program: Callable[[Path], Any],
    names: dict[str, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    without = program(tmp_path)
    with traced(perfetto=False, data_dir=str(tmp_path)) as run:
        auto(depth=2, io=True)
        assert program(tmp_path) == without
        auto.remove()
    found = Counter(one.name for one in run.trace.spans)
    assert not run.trace.of("B")
    assert {name: found[name] for name in names} == names


class NoFunction(torch.Tensor):
    """Answers for no function of torch's."""

    @classmethod
    def __torch_function__(cls, func: Any, *_: Any) -> Any:
        raise RuntimeError(f"{func.__name__} is not for this one")


class MovesAlone(torch.Tensor):
    """Can be moved, and is asked nothing else."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in {"to", "cpu", "cuda"}:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise RuntimeError(f"{func.__name__} is not for this one")


class Wrapping(torch.Tensor):
    """Stands for another one, as those that quantize do."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_map(
            lambda one: one.inner if isinstance(one, cls) else one, (args, kwargs or {})
        )
        result = func(*given[0], **given[1])
        return tree_map(lambda one: cls(one) if isinstance(one, torch.Tensor) else one, result)


class NoDispatch(torch.Tensor):
    """Answers for no operator: not for its sizes, its device or its layout either."""

    @staticmethod
    def __new__(cls) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            *(cls, (4, 4)),
            dispatch_sizes_strides_policy="sizes",
            dispatch_device=True,
            dispatch_layout=True,
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise RuntimeError(f"{func} is not for this one")


class NoFacts(torch.Tensor):
    """Has properties that raise."""

    def _raise(self) -> Any:
        raise RuntimeError("it does not say")

    device = nbytes = layout = is_sparse = is_cpu = shape = property(_raise)
    numel = element_size = __len__ = __bool__ = __str__ = __repr__ = __format__ = _raise

    def __eq__(self, other: object) -> Any:
        raise RuntimeError("it cannot be compared")

    __hash__ = torch.Tensor.__hash__


def _faked() -> Any:
    with FakeTensorMode():
        return torch.empty(4, 4)


def _symbolic() -> Any:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(5, 4), static_shapes=False)


def _distributed() -> Any:
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    return distribute_tensor(torch.eye(4), init_device_mesh("cpu", (1,)), [Shard(0)])


TENSORS: dict[str, Callable[[], Any]] = {
    "dense": lambda: torch.eye(4),
    "sparse coo": lambda: torch.eye(4).to_sparse(),
    "sparse csr": lambda: torch.eye(4).to_sparse_csr(),
    "sparse csc": lambda: torch.eye(4).to_sparse_csc(),
    "sparse bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "sparse bsc": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "nested": lambda: torch.nested.nested_tensor([torch.eye(4), torch.ones(2, 4)]),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.eye(4), torch.ones(2, 4)], layout=torch.jagged
    ),
    "mkldnn": lambda: torch.eye(4).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8),
    "meta": lambda: torch.empty(4, 4, device="meta"),
    "fake": _faked,
    "symbolic": _symbolic,
    "distributed": _distributed,
    "no function": lambda: torch.eye(4).as_subclass(NoFunction),
    "moves alone": lambda: torch.eye(4).as_subclass(MovesAlone),
    "wrapping": lambda: Wrapping(torch.eye(4)),
    "no dispatch": NoDispatch,
    "no facts": lambda: torch.eye(4).as_subclass(NoFacts),
}
"""By name what makes one; `distributed` needs a process group."""

BYTES = {
    "dense": 64,
    "sparse coo": 80,
    "sparse csr": 88,
    "sparse csc": 88,
    "sparse bsr": 72,
    "sparse bsc": 72,
    "nested": 96,
    "jagged": 96,
    "mkldnn": 64,
    "quantized": 16,
    "meta": 64,
    "fake": 64,
    "symbolic": None,
    "distributed": 64,
    "no function": 64,
    "moves alone": 64,
    "wrapping": 64,
    "no dispatch": None,
    "no facts": None,
}
"""By name what it takes; of a sparse one its places and values. None where nobody can know."""
