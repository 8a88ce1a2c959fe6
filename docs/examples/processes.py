"""Child processes: each writes a file of its own, however it was started."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


@ai.data.item
def load(index: int) -> int:
    return index


def main() -> None:
    with dftrace_ai.tracing(log_file=OUT / "processes"), ai.pipeline.train:
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
                print(method, pool.submit(load, 1).result())
        subprocess.run([sys.executable, "-c", CHILD], check=True)


CHILD = """
from dftrace_ai import ai
with ai.checkpoint.capture:
    pass
"""

if __name__ == "__main__":
    main()
