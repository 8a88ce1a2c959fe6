"""The scripts of the page "Beyond one machine", as a scheduler runs them, and what it gives for Kubernetes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import clean_environment

from dftrace_ai.generating import Job, generate
from docs.pages import DOCS, blocks

PAGE = DOCS / "guide" / "beyond-one-machine.md"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three traces without indexes in `out`."""
    folder = tmp_path_factory.mktemp("job")
    generate(Job(ranks=3, steps=10), folder / "out", index=False)
    return folder


def scripts() -> dict[str, tuple[str, str]]:
    """What indexes a share of the traces: the script of an array, and the words of a pod; and whose number."""
    (array,) = (block.text for block in blocks(PAGE, "sh") if "#SBATCH --array" in block.text)
    pod, _ = (yaml.safe_load(block.text) for block in blocks(PAGE, "yaml"))
    assert re.search(r"#SBATCH --array=0-(\d)", array)[1] == str(pod["spec"]["completions"] - 1)
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    shell, flag, words = *container["command"], *container["args"]
    assert (shell, flag) == ("sh", "-c")
    return {
        "array": (array, "SLURM_ARRAY_TASK_ID"),
        "pod": (words.replace("/traces/", "out/"), "JOB_COMPLETION_INDEX"),
    }


@pytest.mark.parametrize(("kind", "share"), [("array", 1), ("pod", 2), ("pod", 5)])
def test_each_task_indexes_its_share_and_nothing_else(job: Path, kind: str, share: int) -> None:
    script, number = scripts()[kind]
    for made in job.glob("out/*.df*"):
        made.unlink()
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=job,
        env={
            **clean_environment(),
            number: str(share),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    traces = sorted(path.name for path in job.glob("out/*.pfw.gz"))
    # A task that has none does nothing: it does not take the newest run that it finds.
    mine = traces[share - 1 : share]
    indexed = sorted(path.name for path in job.glob("out/*.dfindex"))
    assert indexed == [name.replace(".pfw.gz", ".dfindex") for name in mine]
