"""The settings without the model. Generated: edit config/model.py instead."""

from __future__ import annotations

from pathlib import Path

from dftrace_ai.config.values import (
    PlainField,
    ToCore,
    directory,
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

__all__ = ["FIELDS", "Fields"]


class Fields:
    """What a `Config` has as attributes, with their defaults."""

    enabled: bool = True
    log_file: Path = Path("trace")
    compression: str = "gzip"
    compression_level: int | None = None
    timestamps: str = "relative"
    args: bool = True
    ids: bool = True
    io: bool = True
    write_buffer_bytes: int = 1048576
    flush_interval_ms: int = 1000
    spool_dir: Path | None = None
    spool_bytes: int = 268435456
    overflow: str = "drop"
    file_mode: str = "0600"
    mask_secrets: bool = True
    max_file_bytes: int | None = None
    max_files: int | None = None
    flight_recorder: bool = False
    flight_seconds: float | None = None
    dump_signal: str | None = None
    finalize_timeout_s: float = 60.0
    max_arg_bytes: int = 1048576
    system_counters_s: float | None = None
    rank: int | None = None
    world_size: int | None = None
    layout: str | None = None
    process_id: int | None = None
    log_level: str = "WARNING"
    data_dir: str | None = None
    summary: bool = False
    auto_parts: str = "all"
    auto_steps: str | None = None
    auto_depth: int = 1
    auto_modules: str | None = None
    auto_device: bool = False
    auto_nvtx: bool = False
    auto_itt: bool = False
    auto_io: bool = False


FIELDS: dict[str, PlainField] = {
    "enabled": PlainField(bool, True),
    "log_file": PlainField(Path, Path("trace"), read=prefix),
    "compression": PlainField(
        str, "gzip", read=lower, to_core=ToCore("compression"), words=("gzip", "zstd", "none")
    ),
    "compression_level": PlainField(
        int, None, optional=True, to_core=ToCore("compression_level", number_or_zero)
    ),
    "timestamps": PlainField(
        str,
        "relative",
        read=lower,
        to_core=ToCore("epoch_us", is_epoch),
        words=("relative", "epoch_us"),
    ),
    "args": PlainField(bool, True, to_core=ToCore("user_args")),
    "ids": PlainField(bool, True, to_core=ToCore("ids")),
    "io": PlainField(bool, True),
    "write_buffer_bytes": PlainField(int, 1048576, least=4096, most=1073741824),
    "flush_interval_ms": PlainField(
        int, 1000, least=1, most=60000, to_core=ToCore("flush_interval_ms")
    ),
    "spool_dir": PlainField(Path, None, optional=True, read=directory),
    "spool_bytes": PlainField(
        int, 268435456, least=1048576, most=1099511627776, to_core=ToCore("spool_bytes")
    ),
    "overflow": PlainField(
        str,
        "drop",
        read=lower,
        to_core=ToCore("wait_on_overflow", is_waiting),
        words=("wait", "drop"),
    ),
    "file_mode": PlainField(str, "0600", read=octal_mode, to_core=ToCore("file_mode", mode_bits)),
    "mask_secrets": PlainField(bool, True),
    "max_file_bytes": PlainField(
        int,
        None,
        optional=True,
        least=65536,
        most=1099511627776,
        to_core=ToCore("max_file_bytes", number_or_zero),
    ),
    "max_files": PlainField(
        int, None, optional=True, least=1, most=100000, to_core=ToCore("max_files", number_or_zero)
    ),
    "flight_recorder": PlainField(bool, False, to_core=ToCore("flight_recorder")),
    "flight_seconds": PlainField(
        float,
        None,
        optional=True,
        least=0.001,
        most=86400.0,
        to_core=ToCore("flight_ns", nanoseconds),
    ),
    "dump_signal": PlainField(str, None, optional=True, read=signal_name),
    "finalize_timeout_s": PlainField(
        float, 60.0, least=0.01, most=86400.0, to_core=ToCore("finish_timeout_ms", milliseconds)
    ),
    "max_arg_bytes": PlainField(
        int, 1048576, least=64, most=1073741824, to_core=ToCore("max_arg_bytes")
    ),
    "system_counters_s": PlainField(float, None, optional=True, least=0.01, most=86400.0),
    "rank": PlainField(int, None, optional=True, least=0),
    "world_size": PlainField(int, None, optional=True, least=1),
    "layout": PlainField(str, None, optional=True, read=layout_text),
    "process_id": PlainField(int, None, optional=True, least=1, most=2147483647),
    "log_level": PlainField(
        str, "WARNING", read=level_name, words=("DEBUG", "INFO", "WARNING", "ERROR")
    ),
    "data_dir": PlainField(str, None, optional=True),
    "summary": PlainField(bool, False),
    "auto_parts": PlainField(str, "all", read=names),
    "auto_steps": PlainField(str, None, optional=True, read=step_range),
    "auto_depth": PlainField(int, 1, least=1, most=100),
    "auto_modules": PlainField(str, None, optional=True, read=names),
    "auto_device": PlainField(bool, False),
    "auto_nvtx": PlainField(bool, False),
    "auto_itt": PlainField(bool, False),
    "auto_io": PlainField(bool, False),
}
