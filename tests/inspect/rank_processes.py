"""Several processes of a process group, each running the same function."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_S = 150

SCRIPT = """
import json, sys
from pathlib import Path
rank, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
sys.path[:0] = json.loads(sys.argv[4])
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=count
)
import importlib
found = getattr(importlib.import_module(sys.argv[5]), sys.argv[6])(rank, folder)
(folder / f"found{rank}.json").write_text(json.dumps(found))
dist.barrier()
dist.destroy_process_group()
"""


def on_ranks(function: Callable[[int, Path], Any], folder: Path, count: int = 2) -> list[Any]:
    """Call a function of a test module on each rank; return what each gave, as JSON has it.

    It is given the rank and a folder that all share.
    """
    here = str(Path(__file__).parent)
    about = [json.dumps([here, *sys.path]), function.__module__, function.__name__]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), str(count), str(folder), *about],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    said = []
    try:
        for process in processes:
            said.append(process.communicate(timeout=LIMIT_S)[0])
    except subprocess.TimeoutExpired:
        raise AssertionError(f"a rank hangs: {said}") from None
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, said, strict=True):
        assert process.returncode == 0, text[-4000:]
    return [json.loads((folder / f"found{rank}.json").read_text()) for rank in range(count)]
