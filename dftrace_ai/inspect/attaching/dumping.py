"""The feature DumpTensors: tensors in files, as they are seen and as FP8 makes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics.memory import local_part

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from dftrace_ai.inspect.config.sections import Dump
    from dftrace_ai.inspect.numerics.fp8 import Quantised

DIRECTORY = "tensor_dumps"


class TensorFiles:
    """Writes tensors where Transformer Engine's feature of the name does; of a rank its own part.

    A file holds a dict with ``high_precision``, ``quantized`` (of one of torch's 8-bit types) and
    ``scale_inv`` (what that is multiplied by), as far as they are asked for and there are any.
    """

    def __init__(self, log_dir: str | os.PathLike[str], rank: int) -> None:
        self._folder = Path(log_dir) / DIRECTORY / f"rank_{rank}"
        # Layers `a.b` and `a_b` have files of their own, as have the micro-batches of a step.
        self._owners: dict[str, tuple[str, str]] = {}
        self._written: dict[str, tuple[int, int]] = {}

    def inspect_tensor_enabled(
        self, config: dict[str, Dump], iteration: int
    ) -> tuple[bool, int | None]:
        """Tell whether an iteration is due, and which is the next."""
        schedule = config["dump"].schedule
        return schedule.due(iteration), schedule.next_due(iteration)

    def inspect_tensor(
        self,
        config: dict[str, Dump],
        layer_name: str,
        tensor_name: str,
        tensor: Tensor,
        iteration: int,
        quantised: Callable[[], Quantised | None],
    ) -> None:
        """Write a tensor; on a device that waits for it."""
        asked = config["dump"]
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a CUDA graph is being captured, of which nothing can be read")
        kept: dict[str, Tensor] = {}
        if asked.high_precision:
            kept["high_precision"] = tensor
        found = quantised() if asked.quantised else None
        if found is not None:
            kept |= {"quantized": found.numbers, "scale_inv": found.scale_inv}
        if kept:
            path = self._path(layer_name, tensor_name, iteration)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            # A view would bring all that it is a view of.
            torch.save(
                {name: local_part(one).to("cpu", copy=True) for name, one in kept.items()}, part
            )
            part.replace(path)

    def _path(self, layer_name: str, tensor_name: str, iteration: int) -> Path:
        wanted = stem = f"{_in_a_path(layer_name)}_{_in_a_path(tensor_name)}"
        number = 1
        while self._owners.setdefault(stem, (layer_name, tensor_name)) != (layer_name, tensor_name):
            number += 1
            stem = f"{wanted}~{number}"
        last, count = self._written.get(stem, (iteration, 0))
        count = count + 1 if last == iteration else 1
        self._written[stem] = iteration, count
        again = f"_micro_{count}" if count > 1 else ""
        return self._folder / f"{stem}_iter_{iteration:06d}{again}.pt"


def _in_a_path(name: str) -> str:
    return "".join("_" if one in '/\\:*?"<>| .' or not one.isprintable() else one for one in name)
