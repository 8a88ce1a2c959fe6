"""Programs that log what cannot be logged, from everywhere, and wait for it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import nasty
from programs.common import loggers


class Raising:
    shape = property(lambda self: 1 / 0)

    def __float__(self) -> float:
        raise OSError("no number today")


def logs_bad_data() -> None:
    """Whatever a training may hand over by mistake: all else of the call is logged."""
    import collections

    import torch

    logs = loggers("nasty", tracked_variables={"metric": ["loss", "odd", "missing"]})

    class LogsAgain:
        def __float__(self) -> float:
            logs.log_iter({"loss": -1.0}, 100)
            return 1.0

    class LogsItself:
        def __float__(self) -> float:
            logs.log_iter({"loss": self, "odd": self}, 200)
            return 2.0

    class Output(collections.OrderedDict[str, Any]):
        """As models of a well-known library return them."""

        def __getattr__(self, name: str) -> Any:
            return self[name]

    one = torch.ones(1)
    odd = [
        torch.ones(1, requires_grad=True),
        torch.ones(1, device="meta"),
        torch.ones(1).to_sparse(),
        torch.quantize_per_tensor(one, 0.5, 0, torch.quint8),
        torch.ones(1, dtype=torch.complex64),
        torch.ones(3),
        torch.ones(1, dtype=torch.bfloat16),
        float("nan"),
        float("inf"),
        10**400,
        -(10**400),
        True,
        "text",
        b"bytes",
        None,
        1 + 2j,
        Raising(),
        LogsAgain(),
        LogsItself(),
    ]
    for step, value in enumerate(odd):
        logs.log_iter({"loss": float(step), "odd": value, "mising": 1})
    logs.log_iter(Output(loss=one * 50))
    for data in ([1, 2], None, 7, "loss", object()):
        logs.log_iter(data)  # type: ignore[arg-type]
    logs.log_iter({"loss": 60.0}, torch.tensor(60))  # type: ignore[arg-type]
    logs.log_iter({"loss": 61.0}, "step")  # type: ignore[arg-type]
    logs.log_iter({"loss": 5.0}, 55)
    changed = torch.zeros(1)
    for _ in range(3):
        logs.log_iter({"loss": changed})
        changed += 1
    logs.log_epoch("epoch")  # type: ignore[arg-type]
    print("trained")


def logs_bad_by_name() -> None:
    """The same by the methods that log one thing by its name, and of tensors that are no more."""
    import torch

    class Untold:
        def __str__(self) -> str:
            raise OSError("no text today")

    logs = loggers(tracked_variables={"metric": ["none"]})
    logs.log_iter({"none": 0.0})
    freed = torch.ones(4, 4)
    freed.untyped_storage().resize_(0)
    quantised = torch.quantize_per_tensor(torch.ones(4, 4), 0.5, 0, torch.quint8)
    quantised.untyped_storage().resize_(0)
    for value in (freed, quantised):
        logs.log_image("freed", value)
        logs.log_video("freed", value)
        logs.log_mesh("freed", {"vertices": value})
        logs.log_histogram("freed", value)
    logs.log_metrics({"loss": 1.0, "odd": "text", ("a", 1): 2, Untold(): 3.0})
    logs.log_iter({"none": 1.0})
    for data in (None, 5, [("loss", 1)]):
        logs.log_metrics(data)  # type: ignore[arg-type]
    logs.add_scalar("meta", torch.ones(1, device="meta"))
    logs.add_scalar("nested", torch.nested.nested_tensor([torch.ones(1)]))
    logs.add_scalars("main", {"a": 1.0, "b": None})
    logs.log_hyperparams({"lr": torch.ones(1, device="meta")})
    logs.log_text("text", Untold())  # type: ignore[arg-type]
    logs.log_artifact(None)  # type: ignore[arg-type]
    logs.alert("title", level="critical")  # type: ignore[arg-type]
    logs.alert(Untold())  # type: ignore[arg-type]
    logs.end_log("done")  # type: ignore[arg-type]
    print("trained", logs.status)


def logs_from_everywhere(threads: int, calls: int) -> None:
    """From several threads at once, and from a signal handler meanwhile."""
    logs = loggers("nasty")
    signal.signal(signal.SIGALRM, lambda *_: logs.log_iter({"loss": -1.0}))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)

    def log() -> None:
        for _ in range(calls):
            logs.log_iter({"loss": 1.0})

    others = [threading.Thread(target=log) for _ in range(threads)]
    for thread in others:
        thread.start()
    log()
    for thread in others:
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0)
    logs.end_log()
    print("trained")


def waits_for_each(how: str | None) -> None:
    """With `sync` a call returns when all trackers have taken what it logged."""
    options = {"phase": "log", "how": how} if how else {}
    logs = loggers("nasty", options=options, sync=True, limit_s=1.0 if how else 20.0)
    for step in range(5):
        logs.log_iter({"loss": float(step)})
        if not how:
            taken = Path("runs/default/run/nasty.txt").read_text().split()
            assert taken == [str(each) for each in range(step + 1)], taken
    print("trained")


def asks_for_the_tracker() -> None:
    """The tracker's own object is there where it is in this process."""
    from dftrace_ai.loggers.logger import NotInProcessError

    here, there = loggers("nasty", in_process=True), loggers("nasty", run="other")
    nasty.Nasty.experiment = "its own object"
    print(here[1].experiment)
    for log in (there[1],):
        try:
            log.experiment  # noqa: B018
        except NotInProcessError as error:
            print(str(error)[:40])
    broken = loggers("nasty", run="b", in_process=True, options={"phase": "begin", "how": "raise_"})
    try:
        broken[1].experiment  # noqa: B018
    except NotInProcessError as error:
        print(str(error)[:40])
