"""Every public name of dftracer's Python package is there, and takes the calls that it takes there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import RunScript

ROOT = Path(__file__).parents[2]

OF_A_NODE = "epoch step image_idx image_size enable"
OF_AN_EVENT = "name cat start_time duration int_args"
# What is called, and its parameters in their order; behind a star by name only.
CALLS = {
    **dict.fromkeys(("AI", "Compute", "Data", "DataLoader", "Communication"), OF_A_NODE),
    **dict.fromkeys(("Device", "Checkpoint", "Pipeline", "Other"), OF_A_NODE),
    "IO": f"* cat parent_name {OF_A_NODE}",
    "DFTracerAI": f"* cat name {OF_A_NODE}",
    "DFTracerAI.__call__": "fn * enable epoch step image_idx image_size args",
    "DFTracerAI.create_children": "names",
    "DFTracerAI.derive": "name",
    "DFTracerAI.disable": "",
    "DFTracerAI.enable": "",
    "DFTracerAI.get_time": "",
    "DFTracerAI.iter": "iterator * include_block include_iter iter_name block_name",
    "DFTracerAI.reset": "",
    "DFTracerAI.start": "metadata",
    "DFTracerAI.stop": "metadata",
    "DFTracerAI.update": "epoch step image_idx image_size args",
    "Dynamo": f"name {OF_A_NODE}",
    "Dynamo.add_enhanced_timing_to_graph": "gm",
    "Dynamo.compile": "f_py autograd",
    "Dynamo.count_parameters": "module",
    "NoOpProfiler": "",
    "TagValue": "value dtype tag_type",
    "TagValue.value": "",
    "capture_signal": "signal_number frame",
    "create_backend": f"name {OF_A_NODE} autograd",
    "dft_fn": f"cat name {OF_A_NODE}",
    "dft_fn.flush": "",
    "dft_fn.generates": "type key store uri",
    "dft_fn.iter": "func name iter_name",
    "dft_fn.log": "func name",
    "dft_fn.log_init": "init name",
    "dft_fn.log_metadata": "key value",
    "dft_fn.log_static": "func name",
    "dft_fn.relate": "relation entity",
    "dft_fn.relate_entity": "relation type key store uri",
    "dft_fn.reset": "",
    "dft_fn.update": "epoch step image_idx image_size args",
    "dft_fn.uses": "type key store uri",
    "dftracer": "",
    "dftracer.declare_entity": "type key store uri",
    "dftracer.declare_entity_type": "type role description",
    "dftracer.enter_event": "",
    "dftracer.exit_event": "",
    "dftracer.finalize": "",
    "dftracer.get_config": "key",
    "dftracer.get_instance": "",
    "dftracer.get_time": "",
    "dftracer.initialize_log": "logfile data_dir process_id",
    "dftracer.log_event": f"{OF_AN_EVENT} float_args string_args relations",
    "dftracer.log_metadata_event": "key value",
    "dftracer.mark_used": "name",
    "dftracer.relate_entities": "relation subject object",
    "dftracer.set_app_metadata_int": "key value",
    "dftracer.set_app_metadata_string": "key value",
    "get_default_args": "func",
    "get_iter_block_name": "name",
    "get_iter_handle_name": "name",
    "get_time_scale": "",
    "setup_logger": "name log_file formatter level",
    "setup_stream_logger": "",
}
CONSTANTS = {
    "BLOCK_NAME": "block",
    "CTX_SEPARATOR": ".",
    "DFTRACER_ENABLE_ENV": "DFTRACER_ENABLE",
    "DFTRACER_INIT_ENV": "DFTRACER_INIT",
    "DFTRACER_LOG_LEVEL_ENV": "DFTRACER_LOG_LEVEL",
    "DFTRACER_TIME_METRIC_ENV": "DFTRACER_TIME_METRIC",
    "INIT_NAME": "init",
    "ITER_COUNT_NAME": "count",
    "ITER_NAME": "iter",
    "ROOT_CAT": "ai_root",
    "ROOT_NAME": "ai_root",
    "START_METADATA_NAME": "start",
    "STOP_METADATA_NAME": "end",
    "DFTRACER_INIT_PRELOAD": True,
    "DFTRACER_LOG_LEVEL": "ERROR",
}
ENUMS = {
    "CheckpointEvent": "capture restart",
    "CommunicationEvent": (
        "send receive barrier bcast reduce all_reduce gather all_gather scatter reduce_scatter "
        "all_to_all"
    ),
    "ComputeEvent": "forward backward step",
    "DataEvent": "preprocess item",
    "DataLoaderEvent": "fetch",
    "DeviceEvent": "transfer",
    "EntityRelation": [*range(4), *range(16, 23)],
    "EntityRole": [*range(6)],
    "EntityStore": [*range(9)],
    "IOEvent": "open read write close",
    "OtherEvent": "log",
    "PipelineEvent": "epoch train evaluate test",
    "ProfileCategory": "compute data dataloader comm device checkpoint pipeline other",
    "TagDType": [0, 1, 2],
    "TagType": [0, 1, 2],
}
OTHERS = {
    *("ai", "checkpoint", "comm", "compute", "data", "dataloader", "device", "pipeline", "dynamo"),
    *("DFTRACER_ENABLE", "EntityID", "P", "ProfilerProtocol", "R", "StringEnum", "T"),
    *("TagValueTuple", "logger", "profiler"),
}
NAMES = {name for name in CALLS if "." not in name} | CONSTANTS.keys() | ENUMS.keys() | OTHERS

TABLE = json.dumps([CALLS, CONSTANTS, ENUMS, sorted(NAMES)])

# What a package of that interface lacks of the table, and has beyond it.
ASK = """
import enum, inspect, json, operator, sys
sys.modules.setdefault("torch", None)  # not what this is about, and slow to load
module = __import__(sys.argv[1], fromlist=["ai"])
calls, constants, enums, names = json.loads(sys.argv[2])
said = [f"{name} is not there" for name in names if not hasattr(module, name)]
for path, parameters in calls.items():
    of_class, _, method = path.partition(".")
    called = inspect.getattr_static(getattr(module, of_class), method) if method else (
        getattr(module, of_class))
    first = [None] if method and not isinstance(called, (classmethod, staticmethod)) else []
    if method:
        called = getattr(getattr(module, of_class), method)
    signature = inspect.signature(called)
    by_place, _, by_name = parameters.partition("*")
    values = by_place.split()
    try:
        signature.bind(*first, *values, **{name: 1 for name in by_name.split()})
        bound = signature.bind(*first, **{name: 1 for name in parameters.replace("*", "").split()})
    except TypeError as error:
        said.append(f"{path}({parameters}): {error} {signature}")
for name, value in constants.items():
    if getattr(module, name) != value:
        said.append(f"{name} is {getattr(module, name)!r}")
for name, values in enums.items():
    found = [member.value for member in getattr(module, name)]
    if found != (values.split() if isinstance(values, str) else values):
        said.append(f"{name} has {found}")
    if isinstance(values, str) and [str(member) for member in getattr(module, name)] != found:
        said.append(f"{name} is no text")
import typing
own = {name for name, value in vars(module).items() if not name.startswith("_")
       and not inspect.ismodule(value) and not name.endswith("_orig")
       and str(getattr(value, "__module__", "dftracer") or "dftracer").startswith(("dftr", "logging"))}
beyond = sorted(own - set(names) - {"logging"})
print(json.dumps([said, beyond]))
"""


def _asked(python: str, module: str) -> list[Any]:
    done = subprocess.run(
        [python, "-c", ASK, module, TABLE], capture_output=True, text=True, check=True
    )
    said: list[Any] = json.loads(done.stdout)
    return said


def test_every_name_is_there_and_takes_the_same_calls(run_script: RunScript) -> None:
    done = run_script(ASK, args=["dftrace_ai.compat.dftracer", TABLE])
    ((missing, _),) = done.said
    assert missing == []


def test_the_table_is_what_dftracer_has() -> None:
    asked = "import importlib.metadata as m; print(m.version('pydftracer'))"
    for python in (ROOT / ".venv-trackers/bin/python", Path(sys.executable)):
        if (
            python.exists()
            and not subprocess.run([python, "-c", asked], capture_output=True).returncode
        ):
            assert _asked(str(python), "dftracer.python") == [[], []]
            return
    pytest.skip("pydftracer is not installed: `make .venv-trackers/made`")


def test_the_two_names_of_the_face_load_none_of_the_rest(run_script: RunScript) -> None:
    """Neither dftracer's nodes, which would hang on the tree, nor its enumerations."""
    done = run_script(
        """
        import json, sys
        from dftrace_ai import dft_fn, dftracer
        dft_fn("a", "b").update(step=1)
        print(json.dumps([name for name in sys.modules if name.startswith("dftrace_ai.compat.")]))
        """
    )
    assert set(done.said[0]) == {"dftrace_ai.compat.functions", "dftrace_ai.compat.logger"}
