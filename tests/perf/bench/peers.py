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
    # Trackers run with the torch of that interpreter, too, and with its accelerate.
    "wandb": (["wandb==0.31.0"],),
    "mlflow": (["mlflow-skinny==3.17.2", "sqlalchemy", "alembic"],),
    "trackio": (["trackio==0.43.0"],),
    "pydftracer": (
        ["typing_extensions", "pyyaml", "numpy", "psutil"],
        ["--no-deps", "pydftracer==2.0.6", "dftracer==2.2.0"],
    ),
}


def main() -> None:
    """Create the environment and install each peer; one that fails is told and left out."""
    target = Path(sys.argv[1])
    venv.create(target, with_pip=True)
    python = target / "bin" / "python"
    for peer, installs in PEERS.items():
        for packages in installs:
            command = [str(python), "-m", "pip", "install", "--quiet", *packages]
            if subprocess.run(command, check=False).returncode != 0:
                print(f"{peer}: not installed; its figures will be shown as -", file=sys.stderr)


if __name__ == "__main__":
    main()
