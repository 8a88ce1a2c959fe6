"""The settings of a run: the one table of them.

Here stands of each its type, default, bounds, variables, what the native core calls it and what is
said of it. Arguments, variables, files, the schema and docs/configuration.md go by this table.
"""

# Annotations are read when the class is made: no future import.
from pathlib import Path
from typing import Literal

from dftrace_ai.config import values
from dftrace_ai.config.rows import Settings, setting

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

COMPRESSION_LEVELS = {"gzip": (1, 12), "zstd": (1, 19)}


class Config(Settings):
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

    enabled: bool = setting(
        default=True,
        variable="DFTRACE_ENABLE",
        alias="DFTRACER_ENABLE",
        about="Record anything at all. When false, every node is inert and no file is made.",
    )
    log_file: Path = setting(
        default=Path("trace"),
        read=values.prefix,
        accepted="a path whose last part is a file stem, such as 'out/trace'",
        alias="DFTRACER_LOG_FILE",
        about=(
            "Where the trace goes: a directory and a file stem, to which host, process id and "
            "suffix are added. A suffix of a trace file is left out, a final slash means the "
            "stem 'trace' in that directory, and '~' is the home directory."
        ),
    )
    compression: Literal["gzip", "zstd", "none"] = setting(
        default="gzip",
        read=values.lower,
        alias="DFTRACER_TRACE_COMPRESSION",
        read_alias=values.gzip_or_none,
        core="compression",
        about="gzip opens in Perfetto as it is; zstd is for archives; none is plain text.",
    )
    compression_level: int | None = setting(
        default=None,
        accepted="a whole number, 1 to 12 for gzip and 1 to 19 for zstd, or none",
        core="compression_level",
        to_core=lambda number: number or 0,
        about=(
            "Effort of the compressor: 1 to 12 for gzip, 1 to 19 for zstd, none for the "
            "compressor's own choice. Ignored when compression is none."
        ),
    )
    timestamps: Literal["relative", "epoch_us"] = setting(
        default="relative",
        read=values.lower,
        core="epoch_us",
        to_core=lambda kind: kind == "epoch_us",
        about=(
            "relative: microseconds with three decimals since the run's time base, exact to the "
            "nanosecond. epoch_us: whole microseconds since 1970."
        ),
    )
    args: bool = setting(
        default=True,
        alias="DFTRACER_INC_METADATA",
        core="user_args",
        about="Write the user's arguments (epoch, step, ...) with every span.",
    )
    ids: bool = setting(
        default=True,
        core="ids",
        about="Write p_idx and level, the id of the enclosing span and the depth.",
    )
    io: bool = setting(
        default=True,
        about="Record the nodes data.io, checkpoint.io and other.io.",
    )
    write_buffer_bytes: int = setting(
        default=1 * MIB,
        least=4 * KIB,
        most=1 * GIB,
        alias="DFTRACER_WRITE_BUFFER_SIZE",
        about="Bytes of plain text in one compressed block of the trace file.",
    )
    flush_interval_ms: int = setting(
        default=1000,
        least=1,
        most=60000,
        core="flush_interval_ms",
        about="Milliseconds after which an event is in the trace file at the latest.",
    )
    spool_dir: Path | None = setting(
        default=None,
        read=values.directory,
        about=(
            "Directory of the mapped spool files that hold events until they are written; none "
            "chooses /dev/shm or a local disk. Never a network file system."
        ),
    )
    spool_bytes: int = setting(
        default=256 * MIB,
        least=1 * MIB,
        most=1024 * GIB,
        core="spool_bytes",
        about="Bytes of spool that one process may use before `overflow` applies.",
    )
    overflow: Literal["wait", "drop"] = setting(
        default="drop",
        read=values.lower,
        core="wait_on_overflow",
        to_core=lambda overflow: overflow == "wait",
        about="What a full spool does: drop events and count them, or wait for the writer.",
    )
    file_mode: str = setting(
        default="0600",
        read=values.octal_mode,
        accepted=(
            "an octal mode with reading and writing for the owner, such as '0640', and no execution"
        ),
        core="file_mode",
        to_core=lambda mode: int(mode, 8),
        about=(
            "Who may read and write the trace files and the logs of tensor inspection, as an "
            "octal mode that the umask does not change; 0640 lets the group read them. Spools "
            "and markers stay the owner's."
        ),
    )
    mask_secrets: bool = setting(
        default=True,
        about=(
            "Leave secrets of the command line out of the trace: values of options and names "
            "that say key, token, password, secret, credential or auth, passwords in addresses, "
            "bearers."
        ),
    )
    max_file_bytes: int | None = setting(
        default=None,
        least=64 * KIB,
        most=1024 * GIB,
        core="max_file_bytes",
        to_core=lambda number: number or 0,
        about=(
            "Bytes after which the trace goes on in another file, a part; none writes one file "
            "of any size."
        ),
    )
    max_files: int | None = setting(
        default=None,
        least=1,
        most=100000,
        core="max_files",
        to_core=lambda number: number or 0,
        about="Files of a trace in parts to keep: the oldest are deleted; none keeps all.",
    )
    flight_recorder: bool = setting(
        default=False,
        core="flight_recorder",
        about=(
            "Keep the last events in the spool and write them only when asked: by "
            "`dftrace_ai.dump`, by `dump_signal`, after an exception that nobody caught, or by "
            "recovery when the process died."
        ),
    )
    flight_seconds: float | None = setting(
        default=None,
        least=0.001,
        most=86400.0,
        core="flight_ns",
        to_core=lambda seconds: round((seconds or 0.0) * 1e9),
        about=(
            "Seconds of events that a flight recorder keeps; none keeps what `spool_bytes` holds."
        ),
    )
    dump_signal: str | None = setting(
        default=None,
        read=values.signal_name,
        accepted="the name of a signal that can be handled, such as SIGUSR2, or none",
        about=(
            "Signal that has a running process write out its events, and where each of its "
            "threads stands, such as SIGUSR2; it must not have a handler. None takes no signal."
        ),
    )
    finalize_timeout_s: float = setting(
        default=60.0,
        least=0.01,
        most=86400.0,
        core="finish_timeout_ms",
        to_core=lambda seconds: round(seconds * 1000),
        about=(
            "Seconds that `finalize` waits for a file system that does not answer; what was not "
            "written stays in the spool."
        ),
    )
    max_arg_bytes: int = setting(
        default=1 * MIB,
        least=64,
        most=1 * GIB,
        core="max_arg_bytes",
        about="Bytes of JSON that the arguments of one event may take; longer text is cut.",
    )
    system_counters_s: float | None = setting(
        default=None,
        least=0.01,
        most=86400.0,
        about="Seconds between samples of CPU, memory, disk, network, GPUs; none takes none.",
    )
    lines_hz: int = setting(
        default=0,
        least=0,
        most=1000,
        core="lines_hz",
        about=(
            "Samples a second of where each thread stands in the program, by function and line; "
            "0 takes none."
        ),
    )
    lines_files: bool = setting(
        default=True,
        core="lines_files",
        about="Have samples of `lines_hz` tell files and lines; when false, functions alone.",
    )
    live_file_s: float | None = setting(
        default=None,
        least=0.0,
        most=3600.0,
        about=(
            "Seconds between two writings of what is open to a small file beside the trace, by "
            "which `dftrace top` and `stuck` see ranks of other hosts. 0 writes none, and none "
            "is 5 where the launcher says that the job has several hosts, or, where it does not "
            "say, ranks meet at an address that is not localhost; else 0."
        ),
    )
    rank: int | None = setting(
        default=None,
        least=0,
        about="Rank of this process; none finds it from the launcher's environment.",
    )
    world_size: int | None = setting(
        default=None,
        least=1,
        about="Number of ranks; none finds it from the launcher's environment.",
    )
    layout: str | None = setting(
        default=None,
        read=values.layout_text,
        accepted="a rank for each dimension, such as 'dp=0,pp=1', each dimension once, or none",
        about=(
            "Rank of this process in each dimension of a parallel training, such as "
            "'dp=0,pp=1'; none finds it from device meshes of PyTorch, Megatron or DeepSpeed."
        ),
    )
    process_id: int | None = setting(
        default=None,
        least=1,
        most=2**31 - 1,
        about=(
            "Process id to write into the events and the file's name; none takes the operating "
            "system's, as forked children always do."
        ),
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting(
        default="WARNING",
        read=values.level_name,
        alias="DFTRACER_LOG_LEVEL",
        about="Least severity of the messages that dftrace_ai itself logs.",
    )
    data_dir: str | None = setting(
        default=None,
        about=(
            "Directory of the training data, or several with colons between them; 'all' is "
            "every file. Written to the trace's header; `auto_io` records files in it."
        ),
    )
    summary: bool = setting(
        default=False,
        about=(
            "When the run has ended, write the verdict of `dftrace why` and the biggest figures "
            "to standard error, in rank 0."
        ),
    )
    auto_parts: str = setting(
        default="all",
        read=values.names,
        accepted="names with commas between them, such as 'forward,backward' or '-data'",
        about=(
            "Which parts of a framework `auto` records: names with commas between them, `-name` "
            "for all but that one."
        ),
    )
    auto_steps: str | None = setting(
        default=None,
        read=values.step_range,
        accepted="a range A:B of whole numbers, such as '10:20', '10:' or ':20', or none",
        about="The steps that `auto` records, A up to B, counted from 0; none is all.",
    )
    auto_depth: int = setting(
        default=1,
        least=1,
        most=100,
        about="How deep `auto` records modules within modules: 1 is the whole model alone.",
    )
    auto_modules: str | None = setting(
        default=None,
        read=values.names,
        accepted="names or patterns with commas between them, such as 'layers.*', or none",
        about=(
            "Modules that `auto` records at any depth: patterns of names or classes, with "
            "commas between them, such as 'layers.*,*Attention'."
        ),
    )
    auto_device: bool = setting(
        default=False,
        about=(
            "Record beside forward, backward, optimizers' steps and blocking collectives what the "
            "stream of the GPU does meanwhile, without waiting for it."
        ),
    )
    auto_nvtx: bool = setting(
        default=False,
        about=(
            "Open ranges of NVTX, which Nsight shows, with the spans of forward, backward and "
            "the optimizer's step."
        ),
    )
    auto_itt: bool = setting(
        default=False,
        about=(
            "Open ranges of ITT, which VTune shows, with the spans of forward, backward and the "
            "optimizer's step."
        ),
    )
    auto_io: bool = setting(
        default=False,
        about=(
            "Have `auto` record what is done with files in `data_dir`, and with those of "
            "checkpoints, as data.io and checkpoint.io."
        ),
    )

    plugins: str = setting(
        default="all",
        read=values.names,
        accepted="names with commas between them, such as 'slow-augment' or '-slow-augment'",
        about=(
            "Which plug-ins of other packages are asked, by `dftrace why` for findings and by "
            "`dftrace report` for sections: names with commas between them, `-name` for all but "
            "that one; `none` asks none."
        ),
    )

    def _disagreement(self) -> str:
        rank, size = self.rank, self.world_size
        if rank is not None and size is not None and rank >= size:
            return f"rank {rank} does not exist in a world_size of {size}; ranks count from 0"
        limits = COMPRESSION_LEVELS.get(self.compression)
        level = self.compression_level
        if limits and level is not None and not limits[0] <= level <= limits[1]:
            return (
                f"compression_level {level} does not exist for {self.compression}; "
                f"accepted: {limits[0]} to {limits[1]}"
            )
        if self.flight_seconds is not None and not self.flight_recorder:
            return "flight_seconds has a meaning only with flight_recorder"
        if self.max_files is not None and self.max_file_bytes is None:
            return "max_files has a meaning only with max_file_bytes"
        return ""


SETTINGS = Config._table
