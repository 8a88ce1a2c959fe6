"""What stands under ``logger:`` in a config: for each interface an entry with its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from dftrace_ai.config.values import octal_mode
from dftrace_ai.config.yaml_file import Guard, opened
from dftrace_ai.errors import ConfigError
from dftrace_ai.trace_format.json_types import JsonObject  # noqa: TC001 - pydantic evaluates it
from dftrace_ai.wording import in_short, quoted

MOST_BYTES = 1 << 20
MOST_DEPTH = 32
MOST_NODES = 50_000


class EntryConfig(BaseModel):
    """The settings of one interface, the key ``config`` of its entry.

    Example::

        EntryConfig(loggers=["metric"], tracked_variables={"metric": ["loss"]})
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    loggers: list[str] = Field(
        default=["metric"],
        description="Routines: metric, hist, hparams, image, mesh, video, or one of your own.",
    )
    tracked_variables: dict[str, list[str]] = Field(
        default_factory=dict,
        description="For each routine the keys of the data that it logs. Without, `metric` takes "
        "every number, and `hparams` what stands under the key `hparams`.",
    )
    log_dir: Path = Field(default=Path("runs"), description="Where files are written.")
    project: str = Field(default="default", min_length=1, description="What runs belong to.")
    run_name: str | None = Field(
        default=None, min_length=1, description="Name of the run; made of the time where null."
    )
    resume: Literal["allow", "must", "never"] = Field(
        default="allow",
        description="Whether to go on with a run of that name: it may, must or must not exist.",
    )
    ranks: Literal["zero", "all"] = Field(
        default="zero", description="Which ranks log: the first only, or all, as a group."
    )
    options: JsonObject = Field(
        default_factory=dict, description="Handed to the tracker's own init."
    )
    tags: list[str] = Field(default_factory=list, description="Words that the run is found by.")
    group: str = Field(default="", description="What runs are put together under.")
    gpu: bool = Field(
        default=False, description="Log memory and utilisation of the GPU with the metrics."
    )
    windows: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=list,
        description="Over how many of the last iterations an epoch's means are also taken.",
    )
    bins: int = Field(default=64, ge=1, le=4096, description="Bins of a histogram.")
    fps: float = Field(default=10.0, gt=0, le=1000, description="Frames a second of a video.")
    video: Literal["gif", "mp4"] = Field(
        default="gif", description="How videos are encoded; mp4 needs the extra of that name."
    )
    system_metrics_s: float | None = Field(
        default=10.0,
        ge=0.1,
        le=3600,
        description="Seconds between two samples of the machine's CPU, memory, disk, network; or "
        "null.",
    )
    status_line: bool = Field(
        default=True, description="Print a line on the state of the run at the end of each epoch."
    )
    attach: list[Literal["trace", "report"]] = Field(
        default_factory=list,
        description="What is kept with the run at its end: the trace that was written meanwhile, "
        "and a report: a page of HTML on what the interface local has logged, and that of "
        "`dftrace report` on what is traced.",
    )
    sync: bool = Field(
        default=False,
        description="Have each call wait until the tracker has taken what was logged.",
    )
    queue: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="So many records wait for a tracker at most; what does not fit is counted.",
    )
    limit_s: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="Seconds that the end of the run waits for trackers, all together, while none "
        "of them gets on; ten times as long in all.",
    )
    in_process: bool = Field(
        default=False,
        description="Have the tracker in the training's own process, where `experiment` gives its "
        "own object, and where it can hang or end the training.",
    )

    file_mode: str = Field(
        default="0600",
        description="Who may read and write logs and media, as an octal mode that the umask does "
        "not change; 0644 lets colleagues read them.",
    )
    mask_secrets: bool = Field(
        default=True,
        description="Leave secrets out of what is logged of the command line and of "
        "hyper-parameters: under names that say key, token, password, secret, credential, auth, "
        "JWT or cookie, in addresses and webhooks, and as bearers.",
    )

    def of_routines(self) -> tuple[object, ...]:
        """Return how values are converted: routines of equal settings are one for all entries."""
        return (
            *(self.gpu, tuple(self.windows), self.bins, self.fps, self.video, self.mask_secrets),
        )

    def of_run(self, run_name: str) -> EntryConfig:
        """Return the same settings for a run that goes on where there is one of that name."""
        return self.model_copy(update={"run_name": run_name, "resume": "allow"})

    @field_validator("file_mode", mode="before")
    @classmethod
    def _octal(cls, mode: Any) -> Any:
        return octal_mode(mode)

    @field_validator("*", mode="before")
    @classmethod
    def _bool_is_no_number(cls, value: object, info: Any) -> object:
        """Refuse true and false where numbers are meant, which pydantic would take as 1 and 0."""
        found = value if isinstance(value, list) else [value]
        kind = cls.model_fields[info.field_name].annotation
        if kind is not bool and any(isinstance(one, bool) for one in found):
            raise ValueError("a truth value")
        return value


class LoggerEntry(BaseModel):
    """One interface's entry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: EntryConfig = Field(default_factory=EntryConfig)


class LoggersFile(BaseModel):
    """A file with a ``logger:`` key, as the JSON Schema describes it."""

    logger: dict[str, LoggerEntry] = Field(
        description="By interface: local, trace, tensorboard, wandb, mlflow, comet, aim, neptune, "
        "trackio, swanlab, or one of your own."
    )


def entries_of(config: object) -> dict[str, EntryConfig]:
    """Read entries by interface; the message of a ConfigError names the key or value.

    They stand in a mapping or an object of OmegaConf, below a key `logger` or without, or in a YAML
    file of that path. What is given is not changed.
    """
    where = "logger"
    if isinstance(config, str | os.PathLike):
        where = quoted(os.fspath(config))
        config = _yaml(config)
    found = _plain(config)
    if isinstance(found, dict) and "logger" in found:
        found = found["logger"]
    if not isinstance(found, dict) or not found:
        raise ConfigError(
            f"{where}: {in_short(found)} is not accepted; accepted: a mapping of interfaces, such "
            "as {'local': {'config': {'loggers': ['metric']}}}"
        )
    return {str(name): _entry(str(name), body, where) for name, body in found.items()}


def _entry(name: str, body: object, where: str) -> EntryConfig:
    try:
        return LoggerEntry.model_validate({} if body is None else body).config
    except ValidationError as error:
        lines = [_explained(fault, f"{where}.{name}") for fault in error.errors(include_url=False)]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None


def _explained(fault: Any, where: str) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        key = str(fault["loc"][-1])
        keys = list(
            LoggerEntry.model_fields if len(fault["loc"]) == 1 else EntryConfig.model_fields
        )
        near = get_close_matches(key, keys, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(keys)}"
        return f"{where}.{place}: unknown key{hint}"
    said = str(fault["msg"]).removeprefix("Value error, ")
    return f"{where}.{place}: {in_short(fault['input'])} is not accepted: {said}"


def _yaml(path: str | os.PathLike[str]) -> object:
    import yaml

    guard = Guard(
        most_bytes=MOST_BYTES,
        most_depth=MOST_DEPTH,
        most_nodes=MOST_NODES,
        references=True,
        unreadable=ConfigError,
        refused=lambda file, line, fault: ConfigError(f"{file}:{line}: {fault}"),
    )
    try:
        with opened(path, guard) as file:
            return None if file.root is None else file.loader.construct_document(file.root)
    except yaml.YAMLError as error:
        raise ConfigError(f"{quoted(os.fspath(path))}: this is not YAML: {error}") from error


def _plain(config: object) -> object:
    """Return builtin mappings and lists of what may be OmegaConf's or another library's."""
    if type(config).__module__.partition(".")[0] == "omegaconf":
        from omegaconf import OmegaConf

        return OmegaConf.to_container(config, resolve=True)
    if isinstance(config, Mapping):
        return {key: _plain(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [_plain(value) for value in config]
    return config
