"""Trackers whose packages are there and do not support this Python: told at once, in a line each."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import RunScript
from loggers.local_lines import Kept

# How packages that are too old or too new for a Python say so, when they are imported.
BODIES = {
    "wandb": "match x:\n  def (:\n",
    "mlflow": "raise RuntimeError('mlflow does not support this Python;\\n\\n  install 3.9')\n",
    "swanlab": "from collections import Mapping\n",
    "trackio": "import sys\nsys.exit('this Python is too new')\n",
    "comet_ml": "import os\nos._exit(7)\n",
}
FAULTS = {
    "wandb": "it could not begin: SyntaxError: ",
    "mlflow": "it could not begin: RuntimeError: mlflow does not support this Python; install 3.9",
    "swanlab": "it could not begin: ImportError: cannot import name 'Mapping'",
    "trackio": "it could not begin: SystemExit: this Python is too new",
    "comet": "its process exited with 7",
}

PROGRAM = """
import logging, sys, time, types
sys.path.insert(0, sys.argv[1])
from dftrace_ai.loggers import make_loggers
# What a program puts in a package's place itself is there, too.
sys.modules["comet_ml"] = types.ModuleType("comet_ml")
sys.modules["comet_ml"].__spec__ = None

told = []
logging.getLogger("dftrace_ai").addHandler(handler := logging.StreamHandler(sys.stderr))
handler.addFilter(lambda record: told.append(record.getMessage()) or True)
logging.getLogger("dftrace_ai").propagate = False

entry = {"config": {"log_dir": sys.argv[2], "run_name": "run", "status_line": False,
                    "system_metrics_s": None}}
names = ("local", *sys.argv[3:])
given = 0
with make_loggers(dict.fromkeys(names, entry)) as loggers:
    end_s = time.monotonic() + 60
    while len(told) < len(names) - 1:
        assert time.monotonic() < end_s, told
        loggers.log_iter({"loss": float(given)})
        loggers.flush()
        given += 1
    print(given)
"""


def test_a_package_that_does_not_support_this_python(run_script: RunScript, tmp_path: Path) -> None:
    for package, body in BODIES.items():
        place = tmp_path / "packages" / package
        place.mkdir(parents=True)
        (place / "__init__.py").write_text(body)
    done = run_script(PROGRAM, args=[str(tmp_path / "packages"), str(tmp_path / "runs"), *FAULTS])
    given = int(done.stdout)
    kept = Kept(tmp_path / "runs")
    assert kept.status == "finished"
    assert dict(kept.metric("loss")) == {step: float(step) for step in range(given)}
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(FAULTS)
    gone = "takes nothing more, and all else goes on without it"
    for name, fault in FAULTS.items():
        now, at_the_end = (line for line in lines if line.startswith(f"the tracker {name} "))
        assert now.startswith(f"the tracker {name} {gone}: {fault}")
        lost = rf"the tracker {name} has not taken {given} of {given} records?: {re.escape(fault)}"
        assert re.match(lost, at_the_end), at_the_end
