"""The settings of a run: one frozen model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from dftrace_ai.config.explaining import explained
from dftrace_ai.config.sources import Setting
from dftrace_ai.config.values import (
    ToCore,
    directory,
    fault_of_several,
    is_epoch,
    is_waiting,
    layout_text,
    level_name,
    lower,
    milliseconds,
    mode_bits,
    names,
    nanoseconds,
    number_or_zero,
    octal_mode,
    prefix,
    signal_name,
    step_range,
)
from dftrace_ai.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Config"]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


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
    log_file: Annotated[Path, BeforeValidator(prefix)] = Field(
        default=Path("trace"),
        description=(
            "Where the trace goes: a directory and a file stem, to which host, process id and "
            "suffix are added. A suffix of a trace file is left out, a final slash means the stem "
            "'trace' in that directory, and '~' is the home directory."
        ),
    )
    compression: Annotated[
        Literal["gzip", "zstd", "none"], BeforeValidator(lower), ToCore("compression")
    ] = Field(
        default="gzip",
        description="gzip opens in Perfetto as it is; zstd is for archives; none is plain text.",
    )
    compression_level: Annotated[int | None, ToCore("compression_level", number_or_zero)] = Field(
        default=None,
        description=(
            "Effort of the compressor: 1 to 12 for gzip, 1 to 19 for zstd, none for the "
            "compressor's own choice. Ignored when compression is none."
        ),
    )
    timestamps: Annotated[
        Literal["relative", "epoch_us"],
        BeforeValidator(lower),
        ToCore("epoch_us", is_epoch),
    ] = Field(
        default="relative",
        description=(
            "relative: microseconds with three decimals since the run's time base, exact to the "
            "nanosecond. epoch_us: whole microseconds since 1970."
        ),
    )
    args: Annotated[bool, ToCore("user_args")] = Field(
        default=True,
        description="Write the user's arguments (epoch, step, ...) with every event.",
    )
    ids: Annotated[bool, ToCore("ids")] = Field(
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
    flush_interval_ms: Annotated[int, ToCore("flush_interval_ms")] = Field(
        default=1000,
        ge=1,
        le=60_000,
        description="Milliseconds after which an event is in the trace file at the latest.",
    )
    spool_dir: Annotated[Path | None, BeforeValidator(directory)] = Field(
        default=None,
        description=(
            "Directory of the mapped spool files that hold events until they are written; none "
            "chooses /dev/shm or a local disk. Never a network file system."
        ),
    )
    spool_bytes: Annotated[int, ToCore("spool_bytes")] = Field(
        default=256 * MIB,
        ge=1 * MIB,
        le=1024 * GIB,
        description="Bytes of spool that one process may use before `overflow` applies.",
    )
    overflow: Annotated[
        Literal["wait", "drop"],
        BeforeValidator(lower),
        ToCore("wait_on_overflow", is_waiting),
    ] = Field(
        default="drop",
        description="What a full spool does: drop events and count them, or wait for the writer.",
    )
    file_mode: Annotated[str, BeforeValidator(octal_mode), ToCore("file_mode", mode_bits)] = Field(
        default="0600",
        description=(
            "Who may read and write the trace files and the logs of tensor inspection, as an octal "
            "mode that the umask does not change; 0640 lets the group read them. Spools and "
            "markers stay the owner's."
        ),
    )
    mask_secrets: bool = Field(
        default=True,
        description=(
            "Leave secrets of the command line out of the trace: values of options and names that "
            "say key, token, password, secret, credential or auth, passwords in addresses, bearers."
        ),
    )
    max_file_bytes: Annotated[int | None, ToCore("max_file_bytes", number_or_zero)] = Field(
        default=None,
        ge=64 * KIB,
        le=1024 * GIB,
        description=(
            "Bytes after which the trace goes on in another file, a part; none writes one file "
            "of any size."
        ),
    )
    max_files: Annotated[int | None, ToCore("max_files", number_or_zero)] = Field(
        default=None,
        ge=1,
        le=100_000,
        description=("Files of a trace in parts to keep: the oldest are deleted; none keeps all."),
    )
    flight_recorder: Annotated[bool, ToCore("flight_recorder")] = Field(
        default=False,
        description=(
            "Keep the last events in the spool and write them only when asked: by "
            "`dftrace_ai.dump`, by `dump_signal`, after an exception that nobody caught, or by "
            "recovery when the process died."
        ),
    )
    flight_seconds: Annotated[float | None, ToCore("flight_ns", nanoseconds)] = Field(
        default=None,
        ge=0.001,
        le=86_400.0,
        allow_inf_nan=False,
        description=(
            "Seconds of events that a flight recorder keeps; none keeps what `spool_bytes` holds."
        ),
    )
    dump_signal: Annotated[str | None, BeforeValidator(signal_name)] = Field(
        default=None,
        description=(
            "Signal that has a running process write out its events, such as SIGUSR2; it must not "
            "have a handler. None takes no signal."
        ),
    )
    finalize_timeout_s: Annotated[float, ToCore("finish_timeout_ms", milliseconds)] = Field(
        default=60.0,
        ge=0.01,
        le=86_400.0,
        allow_inf_nan=False,
        description=(
            "Seconds that `finalize` waits for a file system that does not answer; what was not "
            "written stays in the spool."
        ),
    )
    max_arg_bytes: Annotated[int, ToCore("max_arg_bytes")] = Field(
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
    layout: Annotated[str | None, BeforeValidator(layout_text)] = Field(
        default=None,
        description=(
            "Rank of this process in each dimension of a parallel training, such as 'dp=0,pp=1'; "
            "none finds it from device meshes of PyTorch, Megatron or DeepSpeed."
        ),
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
    log_level: Annotated[LogLevel, BeforeValidator(level_name)] = Field(
        default="WARNING",
        description="Least severity of the messages that dftrace_ai itself logs.",
    )
    data_dir: str | None = Field(
        default=None,
        description=(
            "Directory of the training data, or several with colons between them; 'all' is every "
            "file. Written to the trace's header; `auto_io` records files in it."
        ),
    )
    summary: bool = Field(
        default=False,
        description=(
            "When the run has ended, write the verdict of `dftrace why` and the biggest figures to "
            "standard error, in rank 0."
        ),
    )
    auto_parts: Annotated[str, BeforeValidator(names)] = Field(
        default="all",
        description=(
            "Which parts of a framework `auto` records: names with commas between them, `-name` "
            "for all but that one."
        ),
    )
    auto_steps: Annotated[str | None, BeforeValidator(step_range)] = Field(
        default=None,
        description="The steps that `auto` records, A up to B, counted from 0; none is all.",
    )
    auto_depth: int = Field(
        default=1,
        ge=1,
        le=100,
        description="How deep `auto` records modules within modules: 1 is the whole model alone.",
    )
    auto_modules: Annotated[str | None, BeforeValidator(names)] = Field(
        default=None,
        description=(
            "Modules that `auto` records at any depth: patterns of names or classes, with commas "
            "between them, such as 'layers.*,*Attention'."
        ),
    )

    auto_device: bool = Field(
        default=False,
        description=(
            "Record beside forward, backward and the optimizer's step what the stream of the GPU "
            "does meanwhile, without waiting for it."
        ),
    )

    auto_nvtx: bool = Field(
        default=False,
        description=(
            "Open ranges of NVTX, which Nsight shows, with the spans of forward, backward and the "
            "optimizer's step."
        ),
    )
    auto_itt: bool = Field(
        default=False,
        description=(
            "Open ranges of ITT, which VTune shows, with the spans of forward, backward and the "
            "optimizer's step."
        ),
    )
    auto_io: bool = Field(
        default=False,
        description=(
            "Have `auto` record what is done with files in `data_dir`, and with those of "
            "checkpoints, as data.io and checkpoint.io."
        ),
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
        fault = fault_of_several(self)
        if fault:
            raise ValueError(fault)
        return self

    # Hidden from type checkers, which take the signature from the fields.
    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                settings = {name: Setting(value, name) for name, value in values.items()}
                raise ConfigError(explained(error, settings, type(self).model_fields)) from error
