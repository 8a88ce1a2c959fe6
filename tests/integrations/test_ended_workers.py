"""Workers of a loader that are told to end: by their loader, or as the interpreter ends."""

from __future__ import annotations

from pathlib import Path

from conftest import RunScript
from safety.commands import answer, invoke

ENDS = """
    import gc, os, signal, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset
    import dftrace_ai

    class Items(Dataset):
        def __init__(self, busy):
            self.busy = busy

        def __len__(self):
            return 16

        def __getitem__(self, item):
            if self.busy and item == 9:
                os.write(begun[1], b"9")
                time.sleep(600)
            return torch.ones(2)

    def trained(busy=False):
        model = torch.nn.Linear(2, 1)
        loader = DataLoader(Items(busy), batch_size=1, num_workers=2, persistent_workers=True)
        batches = iter(loader)
        for _ in range(8 if busy else 16):
            model(next(batches)).sum().backward()
        if busy:
            os.read(begun[0], 1)  # a worker that has not begun an item ends by itself
        return loader, batches

    def at_exit():
        global kept
        kept = trained()

    def finalized():
        at_exit()
        dftrace_ai.finalize()

    def by_its_loader():
        trained(busy=True)

    def killed(number=signal.SIGKILL):
        at_exit()
        first = kept[1]._workers[0]
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's raises in the training
        os.system(f"kill -{number} {first.pid}")
        first.join()

    def terminated():
        killed(number=signal.SIGTERM)

    begun = os.pipe()
    out = os.path.dirname(os.environ["DFTRACE_LOG_FILE"])
    gc.freeze()  # none of the children collects what was imported
    for end in (at_exit, finalized, by_its_loader, killed, terminated):
        child = os.fork()
        if child == 0:
            dftrace_ai.auto(log_file=f"{out}/{end.__name__}/t")
            end()
            sys.exit()
        os.waitpid(child, 0)
"""

WORKERS = {
    "at_exit": ["loader", "loader"],
    "finalized": ["loader", "loader"],
    "by_its_loader": ["exit", "loader"],
    # From outside, whatever the signal.
    "killed": ["died", "loader"],
    "terminated": ["died", "loader"],
}

FIRST = """
    import dftrace_ai
    dftrace_ai.initialize()
    import torch
    from torch.utils.data import DataLoader
    dftrace_ai.auto()
    loader = DataLoader(torch.ones(8, 2), batch_size=1, num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 8
"""


def endings(folder: Path) -> list[str]:
    """How the workers of a program ended; no reader has anything to complete or to say."""
    assert not list(folder.glob("*.spool-at"))
    files = answer("info", folder)["files"]
    program = min(files, key=lambda file: file["began_us"])
    assert program["ended"] in {"exit", "finalize"}
    assert invoke("summary", folder).err == ""
    return sorted(file["ended"] for file in files if file is not program)


def test_workers_that_are_told_to_end_have_their_traces(run_script: RunScript) -> None:
    outcome = run_script(ENDS)
    folders = {folder.name: folder for folder in outcome.folder.iterdir() if folder.is_dir()}
    found = {name: endings(folders[name]) for name in WORKERS}
    assert found == WORKERS
    told = " ".join(invoke("info", folders["at_exit"]).out.split())
    assert told.count("by its loader") == 2
    for path in folders["at_exit"].iterdir():
        assert invoke("validate", path).status == 0


def test_a_run_that_is_older_than_multiprocessing(run_script: RunScript) -> None:
    assert endings(run_script(FIRST).folder) == ["loader", "loader"]
