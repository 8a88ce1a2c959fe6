"""Who reads traces for a command: this process, others of this machine, or workers of Dask."""

from __future__ import annotations

import functools
import inspect
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dftrace_ai import system
from dftrace_ai.cli.terminal import complain
from dftrace_ai.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from dftrace_ai.analysis.executors import Executor, Spread
    from dftrace_ai.analysis.reading import Trace

# Less work is done here before others have begun.
LITTLE_S: Final = 5.0


def _jobs_option(says: str) -> Any:
    return typer.Option("--jobs", min=1, metavar="N", help=says)


Jobs = Annotated[
    int | None,
    _jobs_option("Work in so many processes on this machine; the figures are the same."),
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS|local:N",
        help="Read with the workers of a Dask scheduler, such as tcp://node0:8786, which see the "
        "same files; or with so many of this machine.",
    ),
]
DaskFile = Annotated[
    Path | None,
    typer.Option(
        "--dask-file",
        metavar="FILE",
        help="The same, by the file that the scheduler has written (dask scheduler "
        "--scheduler-file FILE).",
    ),
]
DaskAlways = Annotated[
    bool,
    typer.Option(
        "--dask-always", help="Use them for little work, too, which is done sooner without."
    ),
]
Partial = Annotated[
    bool,
    typer.Option(
        "--partial",
        help="Where some traces can be read by none of them, tell what the others say, and end "
        "with status 1.",
    ),
]


class Readers:
    """Those that the options of a call ask for, from when they are needed to the end of it.

    Args:
        bytes_a_second: how much of compressed traces this process alone reads for this command.
        by_default: so many processes where no option says it, and there is work for them.
    """

    def __init__(
        self,
        jobs: int | None = None,
        dask: str | None = None,
        dask_file: Path | None = None,
        *,
        dask_always: bool = False,
        partial: bool = False,
        bytes_a_second: float,
        by_default: int = 1,
    ) -> None:
        given = {"--jobs": jobs, "--dask": dask, "--dask-file": dask_file}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise typer.BadParameter(f"{named[0]} and {named[1]} cannot be given together")
        if dask is not None and not dask:
            raise ConfigError("--dask is empty; it is written as --dask tcp://node0:8786")
        self._jobs = jobs
        self._by_default = by_default
        self._dask: str | None = None
        if dask is not None or dask_file is not None:
            from dftrace_ai.analysis.executors.dask_workers import address_of

            self._dask = address_of(dask, None if dask_file is None else str(dask_file))
        self._always = dask_always
        self._partial = partial
        self._bytes_a_second = bytes_a_second
        self._spread: Spread | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def are_elsewhere(self) -> bool:
        """Whether they may be on other machines, to which a relative path says nothing."""
        return self._dask is not None

    @property
    def jobs(self) -> int:
        """How many processes, or threads, work where there is much to do."""
        return self._jobs or self._by_default

    @property
    def are_asked(self) -> str:
        """The option that asks for them; empty where none does."""
        if self.are_elsewhere:
            return "--dask"
        return "" if self._jobs is None else "--jobs"

    def read_bytes(self) -> int:
        """Return how many bytes they have read."""
        return 0 if self._spread is None else self._spread.size

    @property
    def left_out(self) -> bool:
        """Whether something could be read by none of them."""
        return self._spread is not None and bool(self._spread.left_out)

    def of(self, traces: Iterable[Trace]) -> Spread | None:
        """Return them for these traces; None where this process reads them."""
        from dftrace_ai.analysis.executors.lots import weight_of

        seconds = sum(map(weight_of, traces)) / self._bytes_a_second
        executor: Executor
        if self.are_elsewhere:
            if seconds < LITTLE_S and not self._always:
                complain(f"Dask is not used: about {seconds:.0f} s of work here; --dask-always")
                return None
            from dftrace_ai.analysis.executors.dask_workers import DaskWorkers

            executor = self._stack.enter_context(DaskWorkers(self._dask, says=complain))
        else:
            jobs = self._jobs or (self._by_default if seconds >= LITTLE_S else 1)
            if jobs < 2:
                return None
            from dftrace_ai.analysis.executors.processes import Processes

            executor = self._stack.enter_context(Processes(jobs))
        from dftrace_ai.analysis.executors import Spread

        self._spread = Spread(executor, partial=self._partial)
        return self._spread


def with_readers(
    *, bytes_a_second: float, by_default: Callable[[], int] = lambda: 1, jobs_help: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that ask for readers, where it takes these as `readers`.

    Args:
        bytes_a_second: how much of compressed traces one process reads for it.
        by_default: returns how many processes work where no option says it.
        jobs_help: what `--jobs` is for, where it is for more than reading.
    """

    def of_options(
        *,
        jobs: Jobs = None,
        dask: Dask = None,
        dask_file: DaskFile = None,
        dask_always: DaskAlways = False,
        partial: Partial = False,
    ) -> Readers:
        return Readers(
            jobs,
            dask,
            dask_file,
            dask_always=dask_always,
            partial=partial,
            bytes_a_second=bytes_a_second,
            by_default=by_default(),
        )

    options = {**inspect.signature(of_options, eval_str=True).parameters}
    if jobs_help:
        jobs_kind = Annotated[int | None, _jobs_option(jobs_help)]
        options["jobs"] = options["jobs"].replace(annotation=jobs_kind)

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(**given: Any) -> None:
            asked = {name: given.pop(name) for name in options}
            command(**given, readers=of_options(**asked))

        own = inspect.signature(command, eval_str=True)
        there = [one for name, one in own.parameters.items() if name != "readers"]
        shown = own.replace(parameters=[*there, *options.values()])
        called.__signature__ = shown  # type: ignore[attr-defined]  # what typer makes options of
        called.__annotations__ = {name: one.annotation for name, one in shown.parameters.items()}
        return called

    return decorated


def processors() -> int:
    """Return how many processors this process may use."""
    return system.processors()
