"""What an interface to a tracker is: two methods that it must have, the others with fallbacks."""

from __future__ import annotations

import abc
import errno
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dftrace_ai.loggers.records import (
    Alert,
    Artifact,
    HistogramRecord,
    ImageRecord,
    MeshRecord,
    MetricsRecord,
    ParamsRecord,
    Point,
    TextRecord,
    VideoRecord,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.records import Params, Record, Status


@dataclass(frozen=True)
class RunFacts:
    """The run that is logged, as every interface is told of it.

    Attributes:
        project: what the run belongs to.
        run_name: its name in the project.
        log_dir: absolute path of the directory that is the run's own; it is there already.
        root: absolute path of the directory of all runs, the entry's ``log_dir``.
        resume: go on with a run of that name: ``"allow"`` it, it ``"must"`` be there, or
            ``"never"``.
        rank: of this process; 0 where there is one only.
        world_size: how many processes there are in the job.
        group: what runs are put together under, or "".
        tags: words that the run is found by.
        options: what the entry's ``options`` hold, for the tracker's own init.
        all_ranks: whether each rank logs, not only the first.
        file_mode: of logs and media.
        mask_secrets: whether secrets of the command line are left out.
        begun_ns: when this process began with it, in nanoseconds since 1970.
    """

    project: str
    run_name: str
    log_dir: Path
    root: Path
    resume: str = "allow"
    rank: int = 0
    world_size: int = 1
    group: str = ""
    tags: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    all_ranks: bool = False
    file_mode: int = 0o600
    mask_secrets: bool = True
    begun_ns: int = 0

    @property
    def title(self) -> str:
        """The run's name at a tracker; where all ranks log, each has a run of its own there."""
        return f"{self.run_name}-rank{self.rank}" if self.all_ranks else self.run_name

    def identity(self, letters: int) -> str:
        """Return so many hexadecimal letters, the same whenever the run is gone on with."""
        said = json.dumps([self.project, self.title]).encode()
        return hashlib.sha256(said).hexdigest()[:letters]


class BaseLogint(abc.ABC):
    """An interface to a tracker.

    A subclass with a `name` is known to configs as soon as it is defined. It needs `log_metrics`
    and `log_file`; what else is logged reaches `log_file` as a file where it has no method of its
    own. All methods are called in one thread, one after the other; what they raise is counted and
    told, and never reaches the training.

    Args:
        run: the run that is logged.

    Attributes:
        run: the run that is logged.
        name: the key in a config.
        packages: what must be importable, by the names of the modules.
        extra: which extra of this package installs them.
        notice: what everybody should know who uses it; told as a warning.
        own_process: whether it lives in a process of its own by default, where it harms nobody.
        sent_later: whether what it has not taken at the end of the run is kept on disk, for
            `dftrace runs --send`.
        experiment: the tracker's own object, once `open` has made it.
        limit_s: seconds that `finish` may take, known when it is called.
        at: when that was logged which is being taken.

    Example::

        class Printer(BaseLogint):
            name = "printer"

            def log_metrics(self, metrics, step):
                print(step, dict(metrics))

            def log_file(self, name, data, suffix, step):
                print(step, f"{name}.{suffix}: {len(data)} bytes")
    """

    name: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    notice: ClassVar[str] = ""
    own_process: ClassVar[bool] = True
    sent_later: ClassVar[bool] = True
    experiment: Any = None
    limit_s: float = 0.0
    at: Point = Point(0)

    known: ClassVar[dict[str, type[BaseLogint]]] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.__dict__.get("name"):
            BaseLogint.known[cls.name] = cls

    def __init__(self, run: RunFacts) -> None:
        self.run = run

    def open(self) -> None:  # noqa: B027 - what needs none of it leaves it out
        """Begin the run at the tracker; called once, before anything else."""

    @abc.abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Take numbers.

        Args:
            metrics: numbers by name. The names of those of an epoch begin with ``epoch/``, those
                of the machine with ``system/``.
            step: number of the iteration, of the epoch for ``epoch/...``, and seconds since the
                run began for ``system/...``.
        """

    @abc.abstractmethod
    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Take a file.

        Args:
            name: what it is of; it may hold slashes.
            data: its bytes.
            suffix: of its name, such as ``"png"``, without a dot.
            step: number of the iteration or epoch.
        """

    def log_params(self, params: Params) -> None:
        """Take hyper-parameters, which may be nested.

        Args:
            params: mappings and lists of texts, numbers, booleans and None.
        """
        self.log_file("hparams", _json(params), "json", self.at.step)

    def log_histogram(self, histogram: HistogramRecord) -> None:
        """Take the counts of bins."""
        facts = histogram._asdict()
        del facts["at"], facts["name"]
        facts["quantiles"] = {str(share): value for share, value in histogram.quantiles.items()}
        self.log_file(histogram.name, _json(facts), "json", histogram.at.step)

    def log_image(self, image: ImageRecord) -> None:
        """Take a picture."""
        self.log_file(image.name, image.png, "png", image.at.step)

    def log_video(self, video: VideoRecord) -> None:
        """Take a clip."""
        self.log_file(video.name, video.data, video.suffix, video.at.step)

    def log_mesh(self, mesh: MeshRecord) -> None:
        """Take a mesh."""
        self.log_file(mesh.name, mesh.glb, "glb", mesh.at.step)

    def log_text(self, text: TextRecord) -> None:
        """Take a text."""
        self.log_file(text.name, text.text.encode(), "txt", text.at.step)

    def log_artifact(self, name: str, path: Path) -> None:
        """Take a file or directory that is kept with the run.

        Args:
            name: what it is called there.
            path: where it is now.
        """
        for full, file in files_of(name, path).items():
            suffix = Path(full).suffix
            data, step = file.read_bytes(), self.at.step
            self.log_file(full.removesuffix(suffix), data, suffix.removeprefix("."), step)

    def log_alert(self, alert: Alert) -> None:
        """Take what somebody should look at."""
        text = f"{alert.level}: {alert.title}\n{alert.text}\n"
        self.log_file(f"alerts/{alert.title}", text.encode(), "txt", alert.at.step)

    def lull(self) -> None:  # noqa: B027
        """Write what was taken and not written; called where nothing more waits at the moment.

        For trackers that write many values in the time of one.
        """

    def flush(self) -> None:  # noqa: B027
        """Have what was taken so far kept."""

    def finish(self, status: Status) -> None:  # noqa: B027
        """End the run at the tracker; called once, after everything else.

        Args:
            status: ``"finished"``, ``"failed"`` or ``"killed"``.
        """

    def forget(self) -> None:  # noqa: B027
        """Close what is the parent's; called in its forked children, when nothing is logged there.

        Nothing may be written, nor waited for: threads and locks are the parent's.
        """

    def take(self, record: Record) -> None:
        """Hand a record to the method that is for it.

        Interfaces that keep when something was logged have this one, instead of the others.

        Args:
            record: what a routine has made.
        """
        self.at = record.at
        if isinstance(record, MetricsRecord):
            self.log_metrics(record.values, record.at.step)
        elif isinstance(record, ParamsRecord):
            self.log_params(record.values)
        elif isinstance(record, HistogramRecord):
            self.log_histogram(record)
        elif isinstance(record, ImageRecord):
            self.log_image(record)
        elif isinstance(record, VideoRecord):
            self.log_video(record)
        elif isinstance(record, MeshRecord):
            self.log_mesh(record)
        elif isinstance(record, TextRecord):
            self.log_text(record)
        elif isinstance(record, Artifact):
            self.log_artifact(record.name, Path(record.path))
        else:
            self.log_alert(record)


def files_of(name: str, path: Path) -> dict[str, Path]:
    """Return the file of an artifact by its name, or those of a directory by names below it."""
    if path.is_file():
        return {name: path}
    if not path.is_dir():  # a pipe would be waited for
        raise OSError(errno.EINVAL, "is no file", str(path))
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {f"{name}/{file.relative_to(path)}": file for file in files}


def step_file(step: int, suffix: str) -> str:
    """Return what the file of a step is called at trackers that know files by name alone."""
    return f"{step:09}.{suffix}" if suffix else f"{step:09}"


def picture_of(image: ImageRecord) -> Any:
    """Return a picture as Pillow has it, which trackers of this package need anyway."""
    import io

    from PIL import Image

    with Image.open(io.BytesIO(image.png)) as picture:
        picture.load()
    return picture


def _json(values: Any) -> bytes:
    return json.dumps(values, default=str).encode()
