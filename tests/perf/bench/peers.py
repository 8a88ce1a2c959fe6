"""Makes the virtual environment that holds the peers: `python -m bench.peers DIRECTORY`."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

# pydftracer and dftracer declare more than their tracing needs, so they come without their
# dependencies and the needed ones are named.
PEERS = {
    "viztracer": (["viztracer==1.1.1"],),
    "nvtx": (["nvtx==0.2.17"],),
    "opentelemetry": (["opentelemetry-sdk==1.45.2"],),
    "dftracer-utils": (["--no-deps", "dftracer-utils==0.0.14"],),
    # It runs with the torch of the interpreter that has dftrace_ai.
    "nvdlfw-inspect": (["--no-deps", "nvdlfw-inspect==0.2.2"], ["pyyaml"]),
    # It runs with that torch, too.
    "traceml": (["--no-deps", "traceml-ai==0.5.0"], ["msgspec", "nvidia-ml-py", "rich", "psutil"]),
    # Of its integration with torch, which takes that torch as well.
    "ddtrace": (["ddtrace==4.16.0"],),
    # Trackers run with the torch of that interpreter, too, and with its accelerate.
    "wandb": (["wandb==0.31.0"],),
    "mlflow": (["mlflow-skinny==3.17.2", "sqlalchemy", "alembic"],),
    "trackio": (["trackio==0.43.0"],),
    "pydftracer": (
        ["typing_extensions", "pyyaml", "numpy", "psutil"],
        ["--no-deps", "pydftracer==2.0.6", "dftracer==2.2.0"],
    ),
}

# Tools that analyse traces, with readers of another version.
ANALYSTS = {
    "dfanalyzer": (["dftracer-analyzer==0.0.9", "dftracer-utils==0.0.12"],),
    "HolisticTraceAnalysis": (["HolisticTraceAnalysis==0.5.0"],),
}


def install(target: Path, peers: dict[str, tuple[list[str], ...]]) -> None:
    """Make an environment of peers; one that fails is told and left out."""
    venv.create(target, with_pip=True)
    python = target / "bin" / "python"
    for peer, installs in peers.items():
        for packages in installs:
            command = [str(python), "-m", "pip", "install", "--quiet", *packages]
            if subprocess.run(command, check=False).returncode != 0:
                print(f"{peer}: not installed; its figures will be shown as -", file=sys.stderr)


def main() -> None:
    """Make the environments: that of the peers, and within it that of the analysts."""
    target = Path(sys.argv[1])
    install(target, PEERS)
    install(target / "analysts", ANALYSTS)


if __name__ == "__main__":
    main()
