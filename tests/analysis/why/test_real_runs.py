"""Trainings on handwritten digits, traced by the package itself, each made slow in one way.

A few, slow enough for any machine; `make why-table` runs those of `real_runs.py`.
"""

from __future__ import annotations

import pytest
from analysis.why.verdicts import label
from conftest import RunScript

from dftrace_ai.analysis.why import why

# The sleeps are many times longer than the rest of a step, on a busy machine, too.
PROGRAM = """
    import io, os, time
    from pathlib import Path

    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import DataLoader, Dataset, default_collate

    import dftrace_ai
    from dftrace_ai import ai

    del os.environ["DFTRACE_LOG_FILE"]  # each run has a folder of its own
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images).float() / 16, torch.tensor(labels)

    class Digits(Dataset):
        def __init__(self, count, item_s=0.0, rare_s=0.0):
            self.count, self.item_s, self.rare_s = count, item_s, rare_s

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            with ai.data.item(index=index):
                time.sleep(self.rare_s if self.rare_s and index % 160 == 159 else self.item_s)
                return images[index % 1000], labels[index % 1000]

    def slow_collate(items):
        with ai.data.preprocess.derive(name="collate"):
            time.sleep(0.06)
            return default_collate(items)

    def train(name, data, workers=0, collate=None, saves=False, logs=False):
        batches = DataLoader(data, batch_size=8, num_workers=workers, collate_fn=collate)
        model = torch.nn.Linear(64, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with dftrace_ai.tracing(log_file=Path("out") / name / "t"):
            for step, (x, y) in enumerate(ai.dataloader.fetch.iter(batches)):
                ai.update(step=step)
                with ai.compute.forward:
                    loss = torch.nn.functional.cross_entropy(model(x), y)
                with ai.compute.backward:
                    loss.backward()
                with ai.compute.step:
                    optimizer.step()
                    optimizer.zero_grad()
                if logs:
                    with ai.other.log:
                        time.sleep(0.06)
                if saves and step % 10 == 9:
                    with ai.checkpoint.capture:
                        torch.save(model.state_dict(), io.BytesIO())
                        time.sleep(0.3)

    train("items inline", Digits(320, item_s=0.006))
    train("too few workers", Digits(320, item_s=0.006), workers=1)
    train("collate", Digits(320), workers=1, collate=slow_collate)
    train("collate inline", Digits(320), collate=slow_collate)
    train("slow items", Digits(960, rare_s=0.5), workers=1)
    train("checkpoints", Digits(320), saves=True)
    train("a logger", Digits(320), logs=True)
"""
PLANTED = {
    "items inline": "input-bound/inline",
    "too few workers": "input-bound/workers",
    "collate": "input-bound/collate",
    "collate inline": "input-bound/collate",
    "slow items": "input-bound/slow-item",
    "checkpoints": "checkpoint-bound/",
    "a logger": "other-heavy/",
}


def test_what_was_planted_into_a_real_training_is_named(run_script: RunScript) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    done = run_script(PROGRAM, env={"OMP_NUM_THREADS": "1"})
    verdicts = {name: why([done.folder / name]) for name in PLANTED}
    named = {
        name: [label(finding) for finding in verdict.findings if label(finding) == PLANTED[name]]
        for name, verdict in verdicts.items()
    }
    assert named == {name: [label] for name, label in PLANTED.items()}
    assert verdicts["too few workers"].findings[0].evidence["workers"] == 1
    (logger,) = [f for f in verdicts["a logger"].findings if f.kind == "other-heavy"]
    assert [(span["cat"], span["name"]) for span in logger.evidence["spans"]] == [
        ("other", "other.log")
    ]
    assert "other.log" in logger.because
    (slow,) = [f for f in verdicts["slow items"].findings if f.cause == "slow-item"]
    assert {item["args"]["index"] % 160 for item in slow.evidence["longest"]} == {159}
    assert "index=" in slow.because
    # What the loader does lies in processes of its own, but for those that load inline.
    for name, verdict in verdicts.items():
        assert verdict.steps is not None
        assert verdict.steps.found_by == "loader blocks", name
        assert verdict.steps.count == (120 if name == "slow items" else 40), name
