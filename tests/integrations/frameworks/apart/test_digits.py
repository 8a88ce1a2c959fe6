"""Programs of the pages on large frameworks record what the pages show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment
from docs.pages import EXAMPLES

from integrations.frameworks.apart.test_apart import LIMIT_S, PYTHON, QUIET, pytestmark
from integrations.frameworks.shown import shows_what_is_recorded

__all__ = ["pytestmark"]

LAUNCH = ("-m", "dftrace_ai.cli", "run", "-o", "out/trace")
RANKS = (
    *("--", str(PYTHON), "-m", "torch.distributed.run", "--nproc-per-node=2"),
    *("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"),
)
ONE_HOST = {
    "DS_ACCELERATOR": "cpu",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.mark.parametrize(
    ("page", "program", "name", "words"),
    [
        ("tensorflow", "tensorflow", "tensorflow", LAUNCH),
        ("tensorflow", "sessions", "sessions", ()),
        ("keras", "keras", "keras-tensorflow", LAUNCH),
        ("deepspeed", "deepspeed", "deepspeed", (*LAUNCH, *RANKS)),
        ("ray-train", "ray", "ray", ()),
        ("megatron", "pipeline", "pipeline", (*LAUNCH, *RANKS)),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_page_shows_what_its_program_records(
    page: str, program: str, name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / f"digits_{program}.py", tmp_path)
    done = subprocess.run(
        [PYTHON, *words, f"digits_{program}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=clean_environment()
        | QUIET
        | ONE_HOST
        # DeepSpeed compiles by a program that lies beside Python.
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        | {"KERAS_HOME": str(tmp_path / "home")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    shows_what_is_recorded(page, name, tmp_path / "out")
