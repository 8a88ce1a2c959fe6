"""What a trainer holds: `Logger`, one for each interface, and the list of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import ConfigError, DftraceError
from dftrace_ai.loggers.attached import check_attached
from dftrace_ai.loggers.config import entries_of
from dftrace_ai.loggers.endings import status_by, watch
from dftrace_ai.loggers.entry import Entry
from dftrace_ai.loggers.pipeline import Pipeline
from dftrace_ai.loggers.records import ENDINGS, LEVELS, Alert, Artifact, ParamsRecord, TextRecord
from dftrace_ai.loggers.routines.hyperparameters import plain_params
from dftrace_ai.loggers.run_place import named_now
from dftrace_ai.masking import masked_values
from dftrace_ai.run import emitting

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.records import Level, Metrics, Status


class _Logging:
    """What logs: the three methods of a logger, those that users of others know, and its end.

    The latter, of Lightning, SummaryWriter and wandb, log single values at any time. What is
    logged so need not be configured as a tracked variable; it reaches all interfaces. Without a
    step it belongs to the last iteration; of numbers without any see `log` and `log_metrics`. What
    cannot be logged is told once, and nothing is raised.
    """

    _pipeline: Pipeline

    def log_iter(self, data: Mapping[str, Any], step: int | None = None) -> None:
        """Log the tracked variables of an iteration, which is one forward pass of the network.

        Values are taken as they are now; everything else is done on other threads and in other
        processes. Whatever a tracker does, this returns at once and raises nothing for it.

        Args:
            data: values by name; what is not tracked is not looked at.
            step: number of the iteration, where not each one is logged; by default one more than
                the last.

        Example::

            loggers.log_iter({"loss": loss, "render": image})
        """
        self._pipeline.log_iter(data, step)

    def log_epoch(self, epoch: int | None = None) -> None:
        """Log what the iterations since the last epoch come to, and print where the run stands.

        An epoch is one query of a new batch of data.

        Args:
            epoch: its number; by default one more than the last.
        """
        self._pipeline.log_epoch(epoch)

    def end_log(self, status: Status | None = None) -> None:
        """End the run at all trackers; a second call does nothing.

        Waits until everything is delivered, for the configured limit at most; what a tracker has
        lost is then told, once.

        Args:
            status: ``"finished"``, ``"failed"`` or ``"killed"``; by default the first.
        """
        said = "finished" if status is None else status
        self._pipeline.end(self._pipeline.known("status", said, ENDINGS, "finished"))

    def close(self) -> None:
        """End the run as finished, as SummaryWriter has it."""
        self.end_log()

    def log_metrics(self, metrics: Metrics, step: int | None = None) -> None:
        """Log numbers.

        Args:
            metrics: numbers, or tensors of one element, by name; mappings of them, whose names
                have slashes between.
            step: number of the iteration. Without, that of the last iteration or call of `log`;
                where there is neither, one more than the last of these names.
        """
        self._pipeline.log_numbers(metrics, step)

    def log(self, values: Metrics, step: int | None = None, **kwargs: Any) -> None:
        """Log numbers, as wandb and accelerate have it.

        Args:
            values: numbers, or mappings of them, by name.
            step: number of the iteration. Without, that of the last iteration; where `log_iter`
                counts none, each call has a number of its own: one more than that of the last.
            kwargs: what trackers take besides, which is not looked at.

        Example::

            loggers.log({"loss": 0.5, "eval": {"accuracy": 0.9}})  # eval/accuracy
        """
        self._pipeline.log_numbers(values, step, counts=True)

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        """Log a number, as SummaryWriter has it."""
        self.log_metrics({tag: scalar_value}, global_step)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Metrics, global_step: int | None = None
    ) -> None:
        """Log numbers that belong together, as SummaryWriter has it."""
        self._pipeline.log_numbers(tag_scalar_dict, global_step, f"{main_tag}/")

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        """Log a number, as `dftrace_ai.inspect.initialize(statistics_logger=...)` has it."""
        self.log_metrics({name: value}, iteration)

    def log_hyperparams(self, params: Any, metrics: Metrics | None = None) -> None:
        """Log hyper-parameters, as Lightning has it.

        Args:
            params: a mapping, dataclass, namespace, pydantic model or object of OmegaConf.
            metrics: numbers that belong to them, if any.
        """

        def made() -> ParamsRecord:
            values = plain_params(params)
            if any(entry.config.mask_secrets for entry in self._pipeline.entries):
                values = masked_values(values)
            named = values if isinstance(values, dict) else {"hparams": values}
            return ParamsRecord(named, self._pipeline.point(None))

        self._pipeline.log_made("log_hyperparams", made)
        if metrics is not None:
            self.log_metrics(metrics)

    def add_hparams(self, hparam_dict: Any, metric_dict: Metrics) -> None:
        """Log hyper-parameters and what came of them, as SummaryWriter has it."""
        self.log_hyperparams(hparam_dict, metric_dict)

    def log_histogram(self, name: str, values: Any, step: int | None = None) -> None:
        """Log how values are distributed; see `HistogramLogger`."""
        self._pipeline.log_by("hist", name, values, step)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None) -> None:
        """Log how values are distributed, as SummaryWriter has it."""
        self.log_histogram(tag, values, global_step)

    def log_image(self, key: str, images: Any, step: int | None = None) -> None:
        """Log a picture, or a grid of several; see `ImageLogger`."""
        self._pipeline.log_by("image", key, images, step)

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None) -> None:
        """Log a picture, as SummaryWriter has it."""
        self.log_image(tag, img_tensor, global_step)

    def add_images(self, tag: str, img_tensor: Any, global_step: int | None = None) -> None:
        """Log a grid of pictures, as SummaryWriter has it."""
        self.log_image(tag, img_tensor, global_step)

    def log_video(self, key: str, video: Any, step: int | None = None, fps: float = 10.0) -> None:
        """Log a clip; see `VideoLogger`."""
        self._pipeline.log_by("video", key, {"video": video, "fps": fps}, step)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4
    ) -> None:
        """Log a clip, as SummaryWriter has it."""
        self.log_video(tag, vid_tensor, global_step, fps)

    def log_mesh(self, key: str, mesh: Any, step: int | None = None) -> None:
        """Log a mesh; see `MeshLogger`."""
        self._pipeline.log_by("mesh", key, mesh, step)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: int | None = None,
    ) -> None:
        """Log a mesh, as SummaryWriter has it."""
        mesh = {"vertices": vertices, "colors": colors, "faces": faces}
        self.log_mesh(tag, mesh, global_step)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Log a text."""
        self._pipeline.log_made(
            "log_text", lambda: TextRecord(str(key), str(text), self._pipeline.point(step))
        )

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        """Log a text, as SummaryWriter has it."""
        self.log_text(tag, text_string, global_step)

    def log_artifact(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Keep a file or directory with the run; it is read when it is delivered.

        Args:
            path: where it is.
            name: what it is called in the run; by default its own name.
        """

        def made() -> Artifact:
            kept = Path(path).absolute()
            called = kept.name if name is None or name == "" else str(name)
            return Artifact(called, str(kept), self._pipeline.point(None))

        self._pipeline.log_made("log_artifact", made)

    def alert(self, title: str, text: str = "", level: Level = "info") -> None:
        """Tell that somebody should look, in every tracker and in the trace.

        Args:
            title: in a few words.
            text: in more.
            level: ``"info"``, ``"warning"`` or ``"error"``; what is none of these is told once,
                and is a warning.
        """

        def made() -> Alert:
            known = self._pipeline.known("level", level, LEVELS, "warning")
            said = Alert(str(title), str(text), known, self._pipeline.point(None))
            if not any(entry.name == "trace" for entry in self._pipeline.entries):
                args = {"text": said.text, "severity": known}
                emitting.instant(f"alert: {said.title}", args, category="log")
            return said

        self._pipeline.log_made("alert", made)

    def flush(self) -> None:
        """Wait until what was logged so far is delivered, within the configured limit."""
        self._pipeline.wait()

    @property
    def status(self) -> Status:
        """How the run stands: running, finished, failed or killed."""
        return self._pipeline.status

    def __copy__(self) -> Self:
        """Return this: whoever copies a trainer logs to the same run."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return this."""
        return self

    def __enter__(self) -> Self:
        """Return this; with the block the run ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, GeneratorExit):
            self.end_log("finished")
        else:
            self.end_log(status_by(error))


class NotInProcessError(DftraceError, AttributeError):
    """A tracker's own object lives in another process."""


class Logger(_Logging):
    """Logs to one interface, by the routines that its entry names.

    Args:
        config: the interface's entry: ``{"aim": {"config": {...}}}``, the path of a YAML file with
            one, or an object of OmegaConf.

    Raises:
        ConfigError: the entry is not accepted, or what it needs is not installed.
        LogDirectoryError: the run's directory cannot be written.

    Example::

        logger = Logger({"tensorboard": {"config": {"loggers": ["metric"]}}})
        logger.log_iter({"loss": 0.5})
        logger.log_epoch()
        logger.end_log()
    """

    def __init__(self, config: Mapping[str, Any] | str | os.PathLike[str]) -> None:
        entries = entries_of(config)
        if len(entries) != 1:
            raise ConfigError(
                f"a Logger has one interface, not {', '.join(entries)}; use make_loggers"
            )
        ((name, settings),) = entries.items()
        check_attached(entries)
        self._hold(Entry.opened(name, settings, named_now()), samples=True)
        watch(self._pipeline, self)

    _held: _Held | None = None

    @classmethod
    def _of(cls, entry: Entry, held: _Held | None) -> Self:
        logger = cls.__new__(cls)
        logger._hold(entry, samples=False)
        logger._held = held
        return logger

    def _hold(self, entry: Entry, *, samples: bool) -> None:
        self._entry = entry
        self._pipeline = Pipeline([entry], samples=samples)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process there is one that logs nothing, as in a worker that was forked."""
        return Logger._of, (self._entry.elsewhere(), None)

    @property
    def name(self) -> str:
        """The key of its interface."""
        return self._entry.name

    @property
    def run_name(self) -> str | None:
        """The name of the run; None on a rank that does not log."""
        return None if self._entry.facts is None else self._entry.facts.run_name

    @property
    def log_dir(self) -> str | None:
        """The directory of the run; None on a rank that does not log."""
        return None if self._entry.facts is None else str(self._entry.facts.log_dir)

    @property
    def experiment(self) -> Any:
        """The tracker's own object, such as a `SummaryWriter`.

        Raises:
            NotInProcessError: the tracker lives in a process of its own; set ``in_process: true``.
                Or it could not begin.
        """
        if self._entry.is_apart:
            raise NotInProcessError(
                f"{self.name} lives in a process of its own; to reach its own object set "
                "in_process: true, and know that it can then hang or end the training"
            )
        self.flush()
        logint = self._entry.logint
        if logint is None:
            raise NotInProcessError(
                f"{self.name} has not begun, or could not, which was told then; or this rank does "
                "not log"
            )
        return logint.experiment

    def __repr__(self) -> str:
        return f"<Logger to {self.name}, run {self.run_name}, {self.status}>"


class _Held:
    """What a list of loggers and each one of them have in common: they end when all are gone."""


class Loggers(list[Logger], _Logging):
    """Loggers, one for each interface, that take each value once for all of them.

    Made by `make_loggers`.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self._held = _Held()
        super().__init__(Logger._of(entry, self._held) for entry in entries)
        self._pipeline = Pipeline(
            entries, samples=True, parts=[logger._pipeline for logger in self]
        )
        watch(self._pipeline, self._held)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process there are some that log nothing, as in a worker that was forked."""
        return Loggers, ([logger._entry.elsewhere() for logger in self],)

    def __repr__(self) -> str:
        return f"<Loggers to {', '.join(logger.name for logger in self)}>"


def make_loggers(config: Any) -> Loggers:
    """Make loggers from the part of a config that says what is logged, and where to.

    Args:
        config: what stands under the key ``logger``, or the mapping that has this key: by
            interface an entry ``{"config": {...}}``. Also the path of a YAML file with either, or
            an object of OmegaConf. It is not changed.

    Returns:
        A list of `Logger`, one for each interface, with the three methods of a logger itself.

    Raises:
        ConfigError: an entry is not accepted, or what it needs is not installed; nothing is left
            open.
        LogDirectoryError: a run's directory cannot be written.

    Example::

        loggers = make_loggers({"local": {"config": {"tracked_variables": {"metric": ["loss"]}}}})
        for batch in loader:
            loggers.log_iter({"loss": train(batch)})
        loggers.log_epoch()
        loggers.end_log()
    """
    return _opened(entries_of(config), named_now())


def begun_again(loggers: Logger | Loggers, run_name: str) -> Loggers:
    """Make loggers to a run that goes on in this process, a child, where the parent's log none."""
    parts = [loggers] if isinstance(loggers, Logger) else loggers
    settings = {one.name: one._entry.config.of_run(run_name) for one in parts}
    return _opened(settings, run_name)


def _opened(settings: Mapping[str, EntryConfig], run_name: str) -> Loggers:
    check_attached(settings)
    entries: list[Entry] = []
    try:
        for key, one in settings.items():
            entries.append(Entry.opened(key, one, run_name))
    except BaseException:
        Pipeline(entries, samples=False).end("failed")
        raise
    return Loggers(entries)
