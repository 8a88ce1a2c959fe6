"""The settings of a run: one frozen model, read from arguments, environment and a YAML file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from dftrace_ai.config.sources import (
    ConfigSources,
    Setting,
    argument_settings,
    environment_settings,
    nearest,
    yaml_settings,
)
from dftrace_ai.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

__all__ = ["Config", "accepted_values", "load_config"]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

TRACE_SUFFIXES = (".pfw.gz", ".pfw.zst", ".pfw")

COMPRESSION_LEVELS = {"gzip": (1, 12), "zstd": (1, 19)}

# What `accepted_values` says where the type alone does not say it.
ACCEPTED_IN_WORDS = {
    "compression_level": "a whole number, 1 to 12 for gzip and 1 to 19 for zstd, or none",
    "dump_signal": "the name of a signal that can be handled, such as SIGUSR2, or none",
    "file_mode": "an octal mode with reading and writing for the owner, such as '0640', "
    "and no execution",
    "log_file": "a path whose last part is a file stem, such as 'out/trace'",
}

# Those that cannot be handled, and those whose default action a crash needs.
UNUSABLE_SIGNALS = {"SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGCHLD"}

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


def _level_name(value: object) -> object:
    """Accept level names in any case, and the short form WARN."""
    if not isinstance(value, str):
        return value
    name = value.strip().upper()
    return "WARNING" if name == "WARN" else name


def _signal_name(value: object) -> object:
    """Accept names of signals that can be handled, with and without SIG, in any case."""
    if not isinstance(value, str):
        return value
    name = value.strip().upper()
    name = name if name.startswith("SIG") else f"SIG{name}"
    if name not in signal.Signals.__members__ or name in UNUSABLE_SIGNALS:
        raise ValueError("no signal that can be handled")
    return name


def _file_mode(value: object) -> object:
    """Accept an octal mode: as text, and as the number that 0640 is in YAML."""
    if isinstance(value, str):
        digits = value.strip().lower().removeprefix("0o")
        value = int(digits, 8) if digits and set(digits) <= set("01234567") else -1
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if value & ~0o666 or value & 0o600 != 0o600:
        raise ValueError("no mode of a file that its owner reads and writes and nobody executes")
    return f"{value:04o}"


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _prefix(value: object) -> object:
    """Turn what the user wrote into a prefix: directory and stem, without a trace suffix."""
    if not isinstance(value, (str, os.PathLike)):
        return value
    text = os.fspath(value)
    if not isinstance(text, str):
        return value
    if not text.strip() or "\0" in text:
        raise ValueError("empty, or holds a NUL character")
    if text.endswith(os.sep):
        text += "trace"
    for suffix in TRACE_SUFFIXES:
        if text.endswith(suffix) and Path(text).name != suffix:
            text = text.removesuffix(suffix)
            break
    path = Path(text).expanduser()
    if not path.name or path.name == "..":
        raise ValueError("names a directory and no file stem")
    return path


def _directory(value: object) -> object:
    if not isinstance(value, (str, os.PathLike)):
        return value
    text = os.fspath(value)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ValueError("empty, or holds a NUL character")
    return Path(text).expanduser()


class Config(BaseModel):
    """All settings of a run; frozen, so that a run cannot change under its writer.

    Every field can be given as an argument of `dftrace_ai.initialize`, as an
    environment variable and as a key of the YAML file that ``DFTRACE_CONFIG``
    names. Arguments win over the environment, the environment over the file.

    Raises:
        ConfigError: a field is unknown or its value is not accepted.

    Example::

        config = Config(log_file="out/trace", compression="zstd")
        with dftrace_ai.tracing(config=config):
            train()
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(
        default=True,
        description="Record anything at all. When false, every node is inert and no file is made.",
    )
    log_file: Annotated[Path, BeforeValidator(_prefix)] = Field(
        default=Path("trace"),
        description=(
            "Where the trace goes: a directory and a file stem, to which host, process id and "
            "suffix are added. A suffix of a trace file is left out, a final slash means the stem "
            "'trace' in that directory, and '~' is the home directory."
        ),
    )
    compression: Annotated[Literal["gzip", "zstd", "none"], BeforeValidator(_lower)] = Field(
        default="gzip",
        description="gzip opens in Perfetto as it is; zstd is for archives; none is plain text.",
    )
    compression_level: int | None = Field(
        default=None,
        description=(
            "Effort of the compressor: 1 to 12 for gzip, 1 to 19 for zstd, none for the "
            "compressor's own choice. Ignored when compression is none."
        ),
    )
    timestamps: Annotated[Literal["relative", "epoch_us"], BeforeValidator(_lower)] = Field(
        default="relative",
        description=(
            "relative: microseconds with three decimals since the run's time base, exact to the "
            "nanosecond. epoch_us: whole microseconds since 1970."
        ),
    )
    args: bool = Field(
        default=True,
        description="Write the user's arguments (epoch, step, ...) with every event.",
    )
    ids: bool = Field(
        default=True,
        description="Write p_idx and level, the id of the enclosing span and the depth.",
    )
    io: bool = Field(
        default=True,
        description="Record the nodes data.io, checkpoint.io and other.io.",
    )
    write_buffer_bytes: int = Field(
        default=1 * MIB,
        ge=4 * KIB,
        le=1 * GIB,
        description="Bytes of plain text in one compressed block of the trace file.",
    )
    flush_interval_ms: int = Field(
        default=1000,
        ge=1,
        le=60_000,
        description="Milliseconds after which an event is in the trace file at the latest.",
    )
    spool_dir: Annotated[Path | None, BeforeValidator(_directory)] = Field(
        default=None,
        description=(
            "Directory of the mapped spool files that hold events until they are written; none "
            "chooses /dev/shm or a local disk. Never a network file system."
        ),
    )
    spool_bytes: int = Field(
        default=256 * MIB,
        ge=1 * MIB,
        le=1024 * GIB,
        description="Bytes of spool that one process may use before `overflow` applies.",
    )
    overflow: Annotated[Literal["wait", "drop"], BeforeValidator(_lower)] = Field(
        default="drop",
        description="What a full spool does: drop events and count them, or wait for the writer.",
    )
    file_mode: Annotated[str, BeforeValidator(_file_mode)] = Field(
        default="0600",
        description=(
            "Who may read and write the trace files, as an octal mode that the umask does not "
            "change; 0640 lets the group read them. Spools and markers stay the owner's."
        ),
    )
    max_file_bytes: int | None = Field(
        default=None,
        ge=64 * KIB,
        le=1024 * GIB,
        description=(
            "Bytes after which the trace goes on in another file, a part; none writes one file "
            "of any size."
        ),
    )
    max_files: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description=("Files of a trace in parts to keep: the oldest are deleted; none keeps all."),
    )
    flight_recorder: bool = Field(
        default=False,
        description=(
            "Keep the last events in the spool and write them only when asked: by "
            "`dftrace_ai.dump`, by `dump_signal`, after an exception that nobody caught, or by "
            "recovery when the process died."
        ),
    )
    flight_seconds: float | None = Field(
        default=None,
        ge=0.001,
        le=86_400.0,
        allow_inf_nan=False,
        description=(
            "Seconds of events that a flight recorder keeps; none keeps what `spool_bytes` holds."
        ),
    )
    dump_signal: Annotated[str | None, BeforeValidator(_signal_name)] = Field(
        default=None,
        description=(
            "Signal that has a running process write out its events, such as SIGUSR2; it must not "
            "have a handler. None takes no signal."
        ),
    )
    finalize_timeout_s: float = Field(
        default=60.0,
        ge=0.01,
        le=86_400.0,
        allow_inf_nan=False,
        description=(
            "Seconds that `finalize` waits for a file system that does not answer; what was not "
            "written stays in the spool."
        ),
    )
    max_arg_bytes: int = Field(
        default=1 * MIB,
        ge=64,
        le=1 * GIB,
        description="Bytes of JSON that the arguments of one event may take; longer text is cut.",
    )
    system_counters_s: float | None = Field(
        default=None,
        ge=0.01,
        le=86_400.0,
        allow_inf_nan=False,
        description="Seconds between samples of CPU, memory, disk, network; none takes none.",
    )
    rank: int | None = Field(
        default=None,
        ge=0,
        description="Rank of this process; none finds it from the launcher's environment.",
    )
    world_size: int | None = Field(
        default=None,
        ge=1,
        description="Number of ranks; none finds it from the launcher's environment.",
    )
    process_id: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description=(
            "Process id to write into the events and the file's name; none takes the operating "
            "system's, as forked children always do."
        ),
    )
    log_level: Annotated[LogLevel, BeforeValidator(_level_name)] = Field(
        default="WARNING",
        description="Least severity of the messages that dftrace_ai itself logs.",
    )
    data_dir: str | None = Field(
        default=None,
        description="Directory of the training data; written to the trace's header, never read.",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _bool_is_no_number(cls, value: object, info: Any) -> object:
        """Refuse true and false where a number is meant, which pydantic would take as 1 and 0."""
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation is not bool:
            raise ValueError("a truth value")
        return value

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.rank is not None and self.world_size is not None and self.rank >= self.world_size:
            raise ValueError(
                f"rank {self.rank} does not exist in a world_size of {self.world_size}; "
                "ranks count from 0"
            )
        limits = COMPRESSION_LEVELS.get(self.compression)
        level = self.compression_level
        if limits and level is not None and not limits[0] <= level <= limits[1]:
            raise ValueError(
                f"compression_level {level} does not exist for {self.compression}; "
                f"accepted: {limits[0]} to {limits[1]}"
            )
        if self.flight_seconds is not None and not self.flight_recorder:
            raise ValueError("flight_seconds has a meaning only with flight_recorder")
        if self.max_files is not None and self.max_file_bytes is None:
            raise ValueError("max_files has a meaning only with max_file_bytes")
        return self

    # Hidden from type checkers, which take the signature from the fields.
    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                settings = {name: Setting(value, name) for name, value in values.items()}
                raise ConfigError(_explained(error, settings)) from error


def load_config(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    **overrides: object,
) -> Config:
    """Gather the settings of a run.

    Args:
        path: a YAML file of settings; by default the one that ``DFTRACE_CONFIG``
            names, if any.
        environ: the environment to read; by default that of the process. This is
            the only place where settings are read from it.
        **overrides: settings that win over environment and file, by field name.

    Returns:
        The settings, checked and frozen.

    Raises:
        ConfigError: a key is unknown, a value is not accepted, or the file cannot
            be read. The message names the argument, variable or line.

    Example::

        config = load_config("trace.yaml", compression="none")
    """
    variables = os.environ if environ is None else environ
    known = tuple(Config.model_fields)
    file = path if path is not None else variables.get("DFTRACE_CONFIG") or None
    settings = ConfigSources(
        file=yaml_settings(file, known) if file is not None else {},
        environment=environment_settings(variables, known),
        arguments=argument_settings(overrides, known),
    ).merged()
    values: dict[str, Any] = {name: setting.value for name, setting in settings.items()}
    try:
        return Config(**values)
    except ConfigError as error:
        # The model knows the fields, only this function knows where they came from.
        if isinstance(error.__cause__, ValidationError):
            raise ConfigError(_explained(error.__cause__, settings)) from None
        raise


def _explained(error: ValidationError, settings: Mapping[str, Setting]) -> str:
    """Return one line for each fault: source, value, what is accepted."""
    lines: list[str] = []
    for fault in error.errors(include_url=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        if not name:
            lines.append(_of_several(str(fault["msg"]), settings))
        elif name not in Config.model_fields:
            lines.append(f"unknown setting {name!r}{nearest(name, Config.model_fields)}")
        else:
            shown = repr(settings[name].value)
            if len(shown) > 200:
                shown = shown[:200] + "..."
            lines.append(
                f"{settings[name].origin}: {shown} is not accepted; "
                f"accepted: {accepted_values(name)}"
            )
    return "\n".join(dict.fromkeys(lines))


def _of_several(message: str, settings: Mapping[str, Setting]) -> str:
    """Return the message of a rule over several fields, with the sources of those fields."""
    text = message.removeprefix("Value error, ")
    named = [setting.origin for name, setting in settings.items() if name in text.split()]
    return f"{', '.join(named)}: {text}" if named else text


def accepted_values(name: str) -> str:
    """Say in words what a field accepts.

    Args:
        name: the name of a field of `Config`.

    Returns:
        Such as ``'gzip', 'zstd' or 'none'`` or ``a whole number from 1 to 60000``.
    """
    if name in ACCEPTED_IN_WORDS:
        return ACCEPTED_IN_WORDS[name]
    info = Config.model_fields[name]
    kinds = get_args(info.annotation) or (info.annotation,)
    optional = " or none" if type(None) in kinds else ""
    if get_origin(info.annotation) is Literal:
        *most, last = (repr(kind) for kind in kinds)
        return f"{', '.join(most)} or {last}"
    if bool in kinds:
        return "true or false (also 1 and 0, yes and no, on and off)"
    if int in kinds or float in kinds:
        noun = "a whole number" if int in kinds else "a number"
        least = next((rule.ge for rule in info.metadata if hasattr(rule, "ge")), None)
        greatest = next((rule.le for rule in info.metadata if hasattr(rule, "le")), None)
        bounds = f", {least} or more" if greatest is None else f" from {least} to {greatest}"
        return noun + bounds + optional
    return f"{'a path' if Path in kinds else 'text'}{optional}"
