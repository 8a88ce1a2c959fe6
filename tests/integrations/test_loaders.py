"""Loaders: what is recorded here and in workers of every kind, and whose wait a late item is."""

from __future__ import annotations

from collections import Counter, defaultdict
from multiprocessing import get_context

import torch
from conftest import RunScript, Traced
from torch import nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
    _utils,
    dataloader,
    default_collate,
)

from dftrace_ai.integrations.auto import Auto
from dftrace_ai.integrations.torch.data import WorkerLoop

LOADERS = """
    import json, os, sys, threading, time
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset
    import dftrace_ai

    LATE = 9  # of the third batch of four

    class Items(Dataset):
        def __init__(self, let_go=None, file=None):
            self.let_go, self.file = let_go, file
        def __len__(self):
            return 16
        def __getitem__(self, i):
            if i == LATE and self.let_go is not None:
                assert self.let_go.wait(100)
            if self.file is not None:
                with open(self.file, "rb") as file:
                    assert file.read() == b"datum"
            return torch.tensor([i, torch.randint(1000, ()).item()])

    class Stream(IterableDataset):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            first, by = (info.id, info.num_workers) if info else (0, 1)
            return iter([torch.tensor([i, 0]) for i in range(first, 16, by)])

    def started(number):
        global STARTED
        STARTED = number

    def is_waiting(thread):
        frame = sys._current_frames()[thread]
        while frame is not None and frame.f_code.co_name != "_next_data":
            frame = frame.f_back
        return frame is not None

    def run(dataset, passes=1, late=None, **options):
        torch.manual_seed(0)
        loader = DataLoader(dataset, batch_size=4, worker_init_fn=started, **options)
        batches, here = [], threading.get_ident()
        for _ in range(passes):
            iterator = iter(loader)
            while True:
                if late is not None and len(batches) == LATE // 4:
                    def let_go():
                        while not is_waiting(here):
                            time.sleep(0.001)
                        late.set()
                    threading.Thread(target=let_go).start()
                try:
                    batches.append(next(iterator).tolist())
                except StopIteration:
                    break
        assert loader.dataset is dataset and loader.worker_init_fn is started
        return batches, loader

    def main():
        torch.set_num_threads(1)
        out = os.path.dirname(os.environ["DFTRACE_LOG_FILE"])
        let_go = torch.multiprocessing.get_context("fork").Event()
        late = {"late": let_go, "num_workers": 2}
        data = f"{out}/data"
        os.makedirs(data, exist_ok=True)
        with open(f"{data}/one", "wb") as file:
            file.write(b"datum")
        files = Items(file=f"{data}/one")
        kept = {"persistent_workers": True}
        cases = {
            "none": (Items(), {}),
            "stream": (Stream(), {}),
            "many": (torch.utils.data.Subset(Items(), range(16)), {}),
            "fork1": (Items(), {"num_workers": 1}),
            "files": (files, {"num_workers": 2}),
            "fork4": (Items(), {"num_workers": 4, "passes": 2}),
            "kept": (Items(), {"num_workers": 2, "passes": 2, **kept}),
            "streams": (Stream(), {"num_workers": 2}),
            "late": (Items(let_go), late),
            "spawn": (files, {"num_workers": 1, "multiprocessing_context": "spawn", **kept}),
            "server": (files, {"num_workers": 1, "multiprocessing_context": "forkserver"}),
        }
        rows = {}
        for name, (dataset, options) in cases.items():
            # What a new interpreter loads is what one worker loads.
            is_new = "multiprocessing_context" in options
            expected = rows["fork1"] if is_new else name == "late" or run(dataset, **options)[0]
            with dftrace_ai.tracing(log_file=f"{out}/{name}", data_dir=data):
                dftrace_ai.auto(io=True)
                rows[name], loader = run(dataset, **options)
                dftrace_ai.auto.remove()
                # Workers that outlast it record nothing more.
                assert not loader.persistent_workers or len(list(loader)) == 4
                del loader
            assert expected in (True, rows[name]), name
        print(os.getpid())

    if __name__ == "__main__":
        main()
"""

EVENTS = {
    # name of the case: here, and in workers
    "none": ({"fetch.iter": 4, "item": 16, "preprocess.collate": 4}, {}),
    "stream": ({"fetch.iter": 4, "item": 16, "preprocess.collate": 4}, {}),
    "many": ({"fetch.iter": 4, "item.batch": 4, "preprocess.collate": 4}, {}),
    "fork1": ({"fetch.iter": 4, "dataloader.workers.start": 1}, 1),
    "files": ({"fetch.iter": 4, "dataloader.workers.start": 1}, 1),
    "fork4": ({"fetch.iter": 8, "dataloader.workers.start": 2}, 2),
    "kept": ({"fetch.iter": 8, "dataloader.workers.start": 1}, 2),
    "streams": ({"fetch.iter": 4, "dataloader.workers.start": 1}, 1),
    "late": ({"fetch.iter": 4, "dataloader.workers.start": 1}, 1),
    "spawn": ({"fetch.iter": 4, "dataloader.workers.start": 1}, 1),
    "server": ({"fetch.iter": 4, "dataloader.workers.start": 1}, 1),
}


def test_loaders_of_every_kind(run_script: RunScript) -> None:
    """The same batches, all items, and the late one on the wait for its batch."""
    outcome = run_script(LOADERS)
    here: dict[str, Counter[str]] = defaultdict(Counter)
    workers: dict[str, Counter[str]] = defaultdict(Counter)
    spans = defaultdict(list)
    for trace in outcome.traces(perfetto=False):
        case = trace.path.name.partition("-")[0]
        for span in trace.spans:
            spans[case].append(span)
            (here if [span.pid] == outcome.said else workers)[case][span.name] += 1
    for case, (expected, in_workers) in EVENTS.items():
        passes = in_workers or 0
        loaded = {"item": 16 * passes, "preprocess.collate": 4 * passes} if passes else {}
        if case in {"files", "spawn", "server"}:
            loaded |= {f"data.io.{name}": 16 for name in ("open", "read", "close")}
        assert (case, dict(here[case]), dict(workers[case])) == (case, expected, loaded)
        waits = [s.args["count"] for s in spans[case] if s.name == "fetch.iter"]
        assert waits == [1, 2, 3, 4] * (passes or 1)
    # The sixth of the worker that loads every other batch of four; a busy machine may hold up others for longer.
    items = defaultdict(list)
    for span in sorted((s for s in spans["late"] if s.name == "item"), key=lambda s: s.ts_ns):
        items[span.pid].append(span)
    (wait,) = [s for s in spans["late"] if s.name == "fetch.iter" and s.args["count"] == 3]
    assert any(wait.ts_ns <= of_worker[5].end_ns <= wait.end_ns for of_worker in items.values())
    assert all(i.args["p_idx"] for i in spans["none"] if i.name == "item")


def test_the_data_of_steps_that_are_asked_for(traced: Traced, auto: Auto) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with traced(perfetto=False) as run:
        auto(steps="2:4")
        for (x,) in DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=4):
            model(x).sum().backward()
            optimizer.step()
        auto.remove()
    counts = Counter(s.name for s in run.trace.spans if s.cat != "pipeline")
    assert counts["fetch.iter"] == counts["preprocess.collate"] == 2
    assert counts["forward"] == counts["backward"] == counts["step"] == 2
    assert [s.args["step"] for s in run.trace.spans if s.name == "step"] == [2, 2, 3, 3]


def two_batches() -> None:
    kinds = dataloader._DatasetKind
    items = TensorDataset(torch.arange(4))
    fetcher = kinds.create_fetcher(kinds.Map, items, True, default_collate, False)
    fetcher.fetch([0, 1])
    fetcher.fetch([2])


def as_in_a_spawned_worker() -> None:
    _utils.worker._worker_loop = two_batches
    WorkerLoop(get_context("fork").Value("b", True), None, {})()


def test_a_worker_with_an_auto_of_its_own_is_in_the_steps_of_the_training(
    traced: Traced, auto: Auto
) -> None:
    """As one has that is spawned and calls it when it imports the script: no step begins there."""
    with traced(perfetto=False) as run:
        auto(steps="5:")
        worker = get_context("fork").Process(target=as_in_a_spawned_worker)
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    assert [span.name for span in run.trace.spans] == [
        *("item", "item", "preprocess.collate", "item", "preprocess.collate")
    ]


def test_a_loader_that_keeps_its_place(run_script: RunScript) -> None:
    """As torchdata's: it has workers of its own making, and asks what it loads for a state."""
    outcome = run_script(
        """
        import json, sys, types
        import torch
        from torch.utils.data import DataLoader, IterableDataset, dataloader

        name = "torchdata.stateful_dataloader.stateful_dataloader"
        home = types.ModuleType(name)
        several = dataloader._MultiProcessingDataLoaderIter
        begin = several.__init__

        class Several(several):
            def __init__(self, loader, next_iter_state=None):
                begin(self, loader)

        class Stateful(DataLoader):
            def _get_iterator(self):
                if self.num_workers:
                    return home._StatefulMultiProcessingDataLoaderIter(self, next_iter_state=None)
                return super()._get_iterator()

        class Counting:
            def __init__(self):
                self.at = 0
            def __iter__(self):
                return self
            def __next__(self):
                self.at += 1
                if self.at > 4:
                    raise StopIteration
                return torch.tensor(self.at)
            def state_dict(self):
                return {"at": self.at}

        class Stream(IterableDataset):
            def __iter__(self):
                return Counting()

        class Itself(Counting, IterableDataset):
            pass

        def main():
            torch.set_num_threads(1)
            home._StatefulMultiProcessingDataLoaderIter = Several
            home._worker_loop = torch.utils.data._utils.worker._worker_loop
            sys.modules[name] = home
            import dftrace_ai
            dftrace_ai.auto()
            batches = [b.tolist() for b in Stateful(torch.arange(4), batch_size=2, num_workers=1)]
            for made in (Stream(), Itself()):
                iterator = iter(DataLoader(made, batch_size=2))
                next(iterator)
                fetcher = iterator._dataset_fetcher
                batches += [
                    fetcher.dataset_iter.state_dict()["at"],
                    isinstance(fetcher.dataset_iter, Counting),
                    fetcher.dataset_iter is fetcher.dataset,
                ]
            print(json.dumps(batches))

        if __name__ == "__main__":
            main()
        """
    )
    assert outcome.said == [[[0, 1], [2, 3], 2, True, False, 2, True, True]]
    own, (worker,) = outcome.split(perfetto=False)
    assert len(own.named("dataloader.workers.start")) == 1
    assert len(worker.named("item")) == 4
