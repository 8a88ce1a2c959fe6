"""Two processes of a gloo job, each of which runs a function of this directory's tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from conftest import clean_environment

LIMIT_S = 120

PREAMBLE = """
import datetime, sys
import torch
import torch.distributed as dist
import dftrace_ai.inspect as debug_api
from inspect_sessions import base_config

rank, out = int(sys.argv[1]), sys.argv[2]
dist.init_process_group(
    "gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=2,
    timeout=datetime.timedelta(seconds=60),
)
"""


def run_two_ranks(source: str, out: Path) -> list[str]:
    """Run a program as ranks 0 and 1; `rank`, `out`, `dist` and `debug_api` are there.

    Returns:
        What each has printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", PREAMBLE + source, str(rank), str(out), f"{folder}/meet"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **clean_environment(),
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join(
                        [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
                    ),
                },
            )
            for rank in range(2)
        ]
        try:
            told = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        assert [rank.returncode for rank in ranks] == [0, 0], told
        return [out for out, _ in told]
