"""The parallel layout: which rank this process is in each dimension, such as ``dp=0,pp=1``.

What frameworks know of it is read where they are imported; nothing here imports them.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

MESHES = "torch.distributed.device_mesh"
MEGATRON = "megatron.core.parallel_state"
DEEPSPEED = "deepspeed.utils.groups"
ENGINES = "deepspeed.runtime.engine"

MOST_DIMENSIONS = 16
MOST_LETTERS = 64

_OF_MEGATRON = {
    "dp": "get_data_parallel_rank",
    "pp": "get_pipeline_model_parallel_rank",
    "tp": "get_tensor_model_parallel_rank",
    "cp": "get_context_parallel_rank",
    "ep": "get_expert_model_parallel_rank",
}
_OF_DEEPSPEED = {
    "dp": "get_data_parallel_rank",
    "pp": "get_pipe_parallel_rank",
    "tp": "get_model_parallel_rank",
}

# What meshes have told.
_of_meshes: dict[str, int] = {}


def find_layout(*, every_mesh: bool) -> str:
    """Return the rank in each dimension as frameworks that are imported know it; else nothing."""
    if every_mesh:
        _look_for_meshes()
    found = dict(_of_meshes)
    megatron = sys.modules.get(MEGATRON)
    if _asked(megatron, "model_parallel_is_initialized"):
        found = _ranks(megatron, _OF_MEGATRON) | found
    groups = sys.modules.get(DEEPSPEED)
    if groups is not None:
        found = _ranks_in_deepspeed(groups) | found
    return ",".join(f"{name}={rank}" for name, rank in [*found.items()][:MOST_DIMENSIONS])


def _ranks_in_deepspeed(groups: Any) -> dict[str, int]:
    mpu = getattr(groups, "mpu", None)
    ranks = _ranks(mpu or groups, _OF_DEEPSPEED)
    # Of data alone; where it has not made its group yet, the question would have it made.
    if mpu is None and getattr(groups, "_WORLD_GROUP", None) is not None:
        ranks = _ranks(groups, {"dp": "_get_data_parallel_rank"}) | ranks
    for name in [*getattr(groups, "_EXPERT_PARALLEL_GROUP", ())][:1]:
        rank = _asked(groups, "_get_expert_parallel_rank", name)
        ranks |= {"ep": rank} if type(rank) is int and rank >= 0 else {}
    return ranks


def _ranks(owner: Any, functions: dict[str, str]) -> dict[str, int]:
    ranks = {name: _asked(owner, function) for name, function in functions.items()}
    return {name: rank for name, rank in ranks.items() if type(rank) is int and rank >= 0}


def _asked(owner: Any, function: str, *words: str) -> Any:
    """Return what a framework answers; None where it has no such groups, or no more."""
    try:
        return getattr(owner, function)(*words)
    except Exception:  # noqa: BLE001 - it asserts, or its process groups are gone
        return None


def _look_for_meshes() -> None:
    """Find meshes that were made before anybody watched."""
    distributed = sys.modules.get("torch.distributed")
    mesh_type = getattr(sys.modules.get(MESHES), "DeviceMesh", None)
    if mesh_type is None or not _asked(distributed, "is_initialized"):
        return
    for one in gc.get_objects():
        if type(one) is mesh_type:
            note_mesh(one)


def note_mesh(mesh: Any) -> None:
    """Take note of what a device mesh knows, if its dimensions have names."""
    if getattr(mesh, "_root_mesh", None) is not None:
        return  # a part of another, or dimensions of it in one
    places = _asked(mesh, "get_coordinate") or ()
    for name, rank in zip(getattr(mesh, "mesh_dim_names", None) or (), places, strict=False):
        well_named = all(letter.isalnum() or letter in "_-" for letter in name)
        if well_named and len(name) <= MOST_LETTERS:
            _of_meshes[name] = int(rank)
