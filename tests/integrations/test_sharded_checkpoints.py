"""Checkpoints of torch.distributed.checkpoint and safetensors: one span a call, and their files."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
import torch_features
from conftest import Traced, read_all, trace_files
from rank_processes import on_ranks
from torch.distributed.checkpoint import state_dict_saver

from dftrace_ai.integrations.auto import Auto

# At first what saves beside the training was `save` itself.
THREADS = sys.modules.get("torch.distributed.checkpoint._async_thread_executor")
BACKGROUND = "capture.background" if hasattr(THREADS, "save_wrapper") else "capture"

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


def state() -> dict[str, torch.Tensor]:
    return {"a": torch.arange(6.0), "b": torch.ones(4)}


def bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def test_sharded_checkpoints(traced: Traced, auto: Auto, tmp_path: Path) -> None:
    functions = dcp.save, dcp.load, dcp.async_save, state_dict_saver.save
    one, several, later = (tmp_path / name for name in ("one", "several", "later"))
    with traced(perfetto=False) as run:
        auto(io=True)
        assert dcp.save is state_dict_saver.save is not functions[0]
        dcp.save(state(), checkpoint_id=one)
        found = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
        dcp.load(found, checkpoint_id=one)
        dcp.save(state(), storage_writer=dcp.FileSystemWriter(several, thread_count=2))
        pending: Any = dcp.async_save(state(), checkpoint_id=later)
        pending.result()
        with pytest.raises(dcp.CheckpointException):
            dcp.load({"c": torch.ones(1)}, checkpoint_id=one)
        auto.remove()
    assert (dcp.save, dcp.load, dcp.async_save, state_dict_saver.save) == functions
    assert all(torch.equal(found[name], tensor) for name, tensor in state().items())
    spans = [s for s in run.trace.spans if s.cat == "checkpoint"]
    calls = [s for s in spans if ".io." not in s.name]
    assert Counter((s.name, s.args.get("bytes"), s.args.get("error")) for s in calls) == Counter(
        [
            ("capture", bytes_below(one), None),
            ("restart", bytes_below(one), None),
            ("capture", bytes_below(several), None),
            ("capture.staging", None, None),
            (BACKGROUND, bytes_below(later), None),
            ("restart", None, "CheckpointException"),
        ]
    )
    (background,) = [s for s in calls if s.tid != threading.get_native_id()]
    assert background.name == BACKGROUND
    files = [s for s in spans if ".io." in s.name]
    assert {s.name for s in files} == {
        f"checkpoint.io.{name}" for name in ("open", "read", "write", "write.sync", "close")
    }
    opened = Counter(Path(s.args["path"]).parent for s in files if s.name == "checkpoint.io.open")
    assert opened[several] == 3  # two files of data, in threads of their own, and one of metadata
    assert opened[later] == 2
    assert all(s.tid == background.tid for s in files if str(later) in str(s.args.get("path")))


def test_safetensors(traced: Traced, auto: Auto, tmp_path: Path) -> None:
    safe = pytest.importorskip("safetensors.torch")
    model = torch.nn.Linear(2, 2)
    path = tmp_path / "model.safetensors"
    with traced(perfetto=False) as run:
        auto()
        safe.save_file(state(), path)
        found = safe.load_file(filename=path)
        safe.save_model(model, str(tmp_path / "model"))
        safe.load_model(model, tmp_path / "model")
        auto.remove()
    assert all(torch.equal(found[name], tensor) for name, tensor in state().items())
    sizes = path.stat().st_size, (tmp_path / "model").stat().st_size
    assert [(s.name, s.args["bytes"]) for s in run.trace.spans if s.cat == "checkpoint"] == [
        *(("capture", sizes[0]), ("restart", sizes[0])),
        *(("capture", sizes[1]), ("restart", sizes[1])),
    ]


def test_what_safe_open_reads(traced: Traced, auto: Auto, tmp_path: Path) -> None:
    safe = pytest.importorskip("safetensors")
    of_torch = pytest.importorskip("safetensors.torch")
    path = tmp_path / "model.safetensors"
    of_torch.save_file(state(), path)
    kind, methods = safe.safe_open, dict(vars(safe.safe_open))

    class Samples(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> torch.Tensor:
            with kind(path, "pt") as file:
                return file.get_tensor("b")[index]

    with traced(perfetto=False) as run:
        auto()
        # It is the very class that a program has imported before by its name.
        assert safe.safe_open is kind
        with kind(path, framework="pt") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}
        with pytest.raises(safe.SafetensorError), kind(path, "pt") as file:
            file.get_tensor("c")
        with kind(path, "pt") as file:
            piece = file.get_slice("a")
            parts = [piece[:2], piece[2:], file.get_tensor("b")]
            shape = piece.get_shape()
        alone = kind(path, "np").get_tensor("b")
        alone_too = kind(path, "np").get_slice("a")[1:3]
        slices = type(piece)
        assert "__dftrace_original__" in vars(vars(slices)["__getitem__"])
        list(torch.utils.data.DataLoader(Samples()))
        of_torch.load_file(path)
        auto.remove()
    assert dict(vars(kind)) == methods
    assert type(vars(slices)["__getitem__"]).__name__ == "wrapper_descriptor"
    assert torch.equal(torch.cat(parts), torch.cat([*state().values()]))
    assert shape == [6]
    assert alone_too.tolist() == [1.0, 2.0]
    assert all(torch.equal(found[name], tensor) for name, tensor in state().items())
    assert alone.tolist() == [1.0] * 4
    spans = [s for s in run.trace.spans if s.cat == "checkpoint"]
    assert [(s.name, s.args.get("bytes"), s.args.get("error")) for s in spans] == [
        ("restart", 6 * 4 + 4 * 4, None),
        ("restart", None, "SafetensorError"),
        ("restart", 6 * 4 + 4 * 4, None),
        ("restart.part", 4 * 4, None),
        ("restart.part", 2 * 4, None),
        ("restart", path.stat().st_size, None),
    ]


def saved_by_ranks(rank: int, folder: Path) -> None:
    """Each rank has a part of it."""
    from torch.distributed.device_mesh import init_device_mesh

    Shard, distribute_tensor = map(torch_features.from_dtensor, ("Shard", "distribute_tensor"))

    import dftrace_ai

    mesh = init_device_mesh("cpu", (2,))
    tensor = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    with dftrace_ai.tracing(log_file=folder / f"rank{rank}"):
        dftrace_ai.auto(parts="checkpoint,io")
        dcp.save({"w": tensor}, checkpoint_id=folder / "saved")
        found = {"w": distribute_tensor(torch.zeros(8), mesh, [Shard(0)])}
        dcp.load(found, checkpoint_id=folder / "saved")
        dcp.async_save({"w": tensor}, checkpoint_id=folder / "later").result()  # type: ignore[union-attr]
        dftrace_ai.auto.remove()
    assert torch.equal(found["w"].to_local(), tensor.to_local())


def test_checkpoints_of_two_ranks(tmp_path: Path) -> None:
    on_ranks(saved_by_ranks, tmp_path)
    for trace in read_all(trace_files(tmp_path)):
        spans = [s for s in trace.spans if s.cat == "checkpoint"]
        assert sorted(s.name for s in spans if ".io." not in s.name) == [
            *sorted(("capture", BACKGROUND, "capture.staging", "restart")),
        ]
        rank = trace.path.name.partition("-")[0].removeprefix("rank")
        written = {Path(s.args["path"]).name for s in spans if "path" in s.args}
        assert f"__{rank}_0.distcp" in written
