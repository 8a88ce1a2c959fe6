"""Which job this process is of, found from what its launcher and scheduler have set."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["job_facts"]

MOST_LETTERS = 200

# Scheduler, and the variable that has its name of the job; the first that is set wins.
_JOBS = (
    ("slurm", "SLURM_JOB_ID"),
    ("ray", "RAY_JOB_ID"),
    ("kubeflow", "KUBEFLOW_TRAINING_JOB_ID"),
    ("kubernetes", "JOB_NAME"),
)
_NODES = ("SLURMD_NODENAME", "NODE_NAME", "K8S_NODE_NAME", "RAY_NODE_ID")
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def job_facts(environ: Mapping[str, str]) -> dict[str, str | int]:
    """Return what the header says of the job.

    Args:
        environ: the environment of the process.

    Returns:
        Of `scheduler`, `job_id`, `run_id`, `node` and `restarts` those that are known.

    Example::

        job_facts({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n3"})["node"]  # "n3"
    """
    facts: dict[str, str | int] = {}
    for scheduler, variable in _JOBS:
        job = _text(environ, variable)
        # Other programs call something JOB_NAME, too.
        if job and (scheduler != "kubernetes" or environ.get("KUBERNETES_SERVICE_HOST")):
            facts["scheduler"], facts["job_id"] = scheduler, job
            break
    run = _text(environ, "TORCHELASTIC_RUN_ID")
    if run and run != "none":
        facts["run_id"] = run
    node = next(filter(None, (_text(environ, variable) for variable in _NODES)), "")
    if node:
        facts["node"] = node
    for variable in _RESTARTS:
        count = environ.get(variable, "").strip()
        if count.isascii() and count.isdecimal() and len(count) < 10:
            facts["restarts"] = int(count)
            break
    return facts


def _text(environ: Mapping[str, str], variable: str) -> str:
    value = environ.get(variable, "").strip()[:MOST_LETTERS]
    return value.encode("utf-8", "replace").decode("utf-8")
