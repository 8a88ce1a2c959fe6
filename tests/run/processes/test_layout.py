"""The parallel layout and the job: given, or found where frameworks and schedulers say them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import RunScript, read_all, trace_files
from rank_processes import on_ranks

import dftrace_ai
from dftrace_ai import ConfigError, ai
from dftrace_ai.analysis.trace_facts import facts_of
from dftrace_ai.config import Config, load_config
from dftrace_ai.run.core_settings import job_facts


def _header(folder: Path, **settings: Any) -> dict[str, Any]:
    with dftrace_ai.tracing(log_file=folder / "t", **settings), ai.compute.forward:
        pass
    (trace,) = read_all(trace_files(folder))
    return {**trace.header, "process_name": trace.process_name}


def test_a_layout_is_given_as_text_or_mapping() -> None:
    assert Config(layout=" dp=3, pp = 01 ").layout == "dp=3,pp=1"
    assert Config(layout={"dp_shard": 0, "tp": 7}).layout == "dp_shard=0,tp=7"
    assert load_config(environ={"DFTRACE_LAYOUT": "ep=2"}).layout == "ep=2"
    assert load_config(environ={"DFTRACE_LAYOUT": "none"}).layout is None


@pytest.mark.parametrize(
    "text",
    ["dp", "dp=", "=0", "dp=x", "dp=-1", "dp=0;pp=1", "dp=0,dp=1", "dp=0,", 'd"p=0', "dp=¹"]
    + [f"{'p' * 65}=0", "p" * 40_000 + "=0"],
    ids=lambda text: text[:9],
)
def test_a_wrong_layout_names_the_variable_and_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"DFTRACE_LAYOUT.*such as 'dp=0,pp=1'"):
        load_config(environ={"DFTRACE_LAYOUT": text})


def test_the_layout_is_in_the_header_and_in_what_is_shown(tmp_path: Path) -> None:
    header = _header(tmp_path, layout="dp=1,pp=0", rank=1, world_size=2)
    assert header["layout"] == "dp=1,pp=0"
    assert header["process_name"].startswith("rank 1 dp=1,pp=0 · ")
    (file,) = facts_of([tmp_path]).files
    assert file.layout == "dp=1,pp=0"


DIES = """
import os
import dftrace_ai
from dftrace_ai import ai
layout = ",".join(chr(0x20000 + one) * 64 + f"={one}" for one in range(16))
dftrace_ai.initialize(layout=layout)
if (child := os.fork()) == 0:
    with ai.compute.forward:
        pass
    os._exit(0)
os.waitpid(child, 0)
dftrace_ai.finalize()
"""


def test_a_process_with_the_longest_layout_leaves_a_trace_when_it_dies(
    run_script: RunScript,
) -> None:
    folder = run_script(DIES).folder
    (trace,) = read_all(trace_files(folder))
    assert [span.name for span in trace.spans] == ["forward"]
    assert len(trace.header["layout"].split(",")) == 16


def test_what_megatron_and_deepspeed_know_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_group() -> int:
        raise AssertionError("expert parallel group is not initialized")

    megatron: Any = ModuleType("megatron.core.parallel_state")
    megatron.model_parallel_is_initialized = lambda: megatron.ready
    megatron.ready = False
    megatron.get_data_parallel_rank = lambda: 4
    megatron.get_tensor_model_parallel_rank = lambda: 1
    megatron.get_expert_model_parallel_rank = no_group
    monkeypatch.setitem(sys.modules, megatron.__name__, megatron)
    assert "layout" not in _header(tmp_path / "early")

    def initialize_model_parallel() -> str:
        megatron.ready = True
        return "made"

    megatron.initialize_model_parallel = initialize_model_parallel
    with dftrace_ai.tracing(log_file=tmp_path / "late" / "t"):
        with ai.compute.forward:
            pass
        assert megatron.initialize_model_parallel() == "made"
    assert megatron.initialize_model_parallel is initialize_model_parallel
    (late,) = read_all(trace_files(tmp_path / "late"))
    assert late.marks == [("layout", "dp=4,tp=1")]
    assert late.footer["layout"] == "dp=4,tp=1"
    assert facts_of([tmp_path / "late"]).files[0].layout == "dp=4,tp=1"
    assert _header(tmp_path / "ready")["layout"] == "dp=4,tp=1"
    assert _header(tmp_path / "given", layout="cp=0")["layout"] == "cp=0"

    monkeypatch.delitem(sys.modules, megatron.__name__)
    groups: Any = ModuleType("deepspeed.utils.groups")
    groups.mpu = SimpleNamespace(get_data_parallel_rank=lambda: 0, get_pipe_parallel_rank=lambda: 3)
    monkeypatch.setitem(sys.modules, groups.__name__, groups)
    assert _header(tmp_path / "deepspeed")["layout"] == "dp=0,pp=3"


@pytest.mark.usefixtures("torch_is_there")
def test_what_an_engine_of_deepspeed_makes_known_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no groups before, asking for one would make it, and they may be gone at the end."""

    class DeepSpeedEngine:
        def __init__(self) -> None:
            groups._WORLD_GROUP = object()
            groups._EXPERT_PARALLEL_GROUP["experts"] = object()

    def data_parallel_rank() -> int:
        assert groups._WORLD_GROUP, "a collective of all ranks"
        return 2

    groups: Any = ModuleType("deepspeed.utils.groups")
    groups.mpu = groups._WORLD_GROUP = None
    groups._EXPERT_PARALLEL_GROUP = {}
    groups._get_data_parallel_rank = data_parallel_rank
    groups._get_expert_parallel_rank = {"experts": 1}.__getitem__
    engines: Any = ModuleType("deepspeed.runtime.engine")
    engines.DeepSpeedEngine = DeepSpeedEngine
    for one in (groups, engines):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    before = DeepSpeedEngine.__init__
    with dftrace_ai.tracing(log_file=tmp_path / "t"):
        with ai.compute.forward:
            pass
        DeepSpeedEngine()
        groups._WORLD_GROUP = None
        groups._EXPERT_PARALLEL_GROUP.clear()
    assert DeepSpeedEngine.__init__ is before
    (trace,) = read_all(trace_files(tmp_path))
    assert "layout" not in trace.header
    assert trace.footer["layout"] == "dp=2,ep=1"


@pytest.fixture
def torch_is_there() -> None:
    pytest.importorskip("torch")


def _meshes(rank: int, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    with dftrace_ai.tracing(log_file=folder / "late", rank=rank):
        with ai.compute.forward:
            pass
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("pp", "dp"))
        assert mesh["dp"].get_local_rank() == rank
        init_device_mesh("cpu", (2,))  # has no names to tell
    with dftrace_ai.tracing(log_file=folder / "early", rank=rank), ai.compute.forward:
        pass


def _mesh_before_the_first_run(rank: int, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    with dftrace_ai.tracing(log_file=folder / "found", rank=rank), ai.compute.forward:
        pass
    assert mesh.ndim == 1


@pytest.mark.parametrize("order", ["after", "before"])
def test_device_meshes_of_two_ranks(tmp_path: Path, order: str) -> None:
    pytest.importorskip("torch")
    on_ranks(_meshes if order == "after" else _mesh_before_the_first_run, tmp_path)
    if order == "before":
        files = [f for f in trace_files(tmp_path) if f.name.startswith("found-")]
        by_rank = {t.header["rank"]: t for t in read_all(files)}
        assert {rank: t.header["layout"] for rank, t in by_rank.items()} == {0: "dp=0", 1: "dp=1"}
        return
    late = read_all([f for f in trace_files(tmp_path) if f.name.startswith("late-")])
    assert sorted((t.header["rank"], *t.marks, t.footer["layout"]) for t in late) == [
        (rank, ("layout", f"pp=0,dp={rank}"), f"pp=0,dp={rank}") for rank in range(2)
    ]
    assert not any("layout" in t.header for t in late)
    early = read_all([f for f in trace_files(tmp_path) if f.name.startswith("early-")])
    assert {t.header["rank"]: t.header["layout"] for t in early} == {0: "pp=0,dp=0", 1: "pp=0,dp=1"}
    assert all("layout" not in t.footer for t in early)


@pytest.mark.parametrize(
    ("environ", "facts"),
    [
        ({}, {}),
        (
            {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n3", "SLURM_RESTART_COUNT": "2"},
            {"scheduler": "slurm", "job_id": "77", "node": "n3", "restarts": 2},
        ),
        (
            {"TORCHELASTIC_RUN_ID": "exp-7", "TORCHELASTIC_RESTART_COUNT": "1"},
            {"run_id": "exp-7", "restarts": 1},
        ),
        ({"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "x"}, {}),
        (
            {"RAY_JOB_ID": "01000000", "RAY_NODE_ID": "ab"},
            {"scheduler": "ray", "job_id": "01000000", "node": "ab"},
        ),
        (
            {"KUBEFLOW_TRAINING_JOB_ID": "pt-1", "NODE_NAME": "gke-1"},
            {"scheduler": "kubeflow", "job_id": "pt-1", "node": "gke-1"},
        ),
        ({"JOB_NAME": "jenkins"}, {}),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_NAME": "train", "K8S_NODE_NAME": "k"},
            {"scheduler": "kubernetes", "job_id": "train", "node": "k"},
        ),
    ],
)
def test_the_job(environ: dict[str, str], facts: dict[str, object]) -> None:
    assert job_facts(environ) == facts


def test_the_job_is_in_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURMD_NODENAME", 'n"3\udc80')
    header = _header(tmp_path)
    assert (header["scheduler"], header["job_id"], header["node"]) == ("slurm", "77", 'n"3?')
    (file,) = facts_of([tmp_path]).files
    assert (file.scheduler, file.job_id, file.node) == ("slurm", "77", 'n"3?')
