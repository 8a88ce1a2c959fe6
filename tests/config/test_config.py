"""Settings: where they come from, which wins, and what is said of a bad one."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from dftrace_ai.config import Config, load_config
from dftrace_ai.config import sources as config_sources
from dftrace_ai.config.rows import accepted_values
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.errors import ConfigError, DftraceError
from dftrace_ai.wording import ToldOnce


def test_defaults_are_those_of_the_model() -> None:
    assert load_config(environ={}) == Config()
    assert Config().log_file == Path("trace")
    assert Config().compression == "gzip"


def test_arguments_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text("rank: 1\nworld_size: 10\nflush_interval_ms: 7\n")
    environ = {"DFTRACE_CONFIG": str(file), "DFTRACE_RANK": "2", "DFTRACE_WORLD_SIZE": "20"}
    found = load_config(environ=environ, rank=3)
    assert (found.rank, found.world_size, found.flush_interval_ms) == (3, 20, 7)


def test_a_path_given_wins_over_the_variable_that_names_one(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("rank: 1")
    (tmp_path / "b.yaml").write_text("rank: 2")
    environ = {"DFTRACE_CONFIG": str(tmp_path / "a.yaml")}
    assert load_config(tmp_path / "b.yaml", environ).rank == 2


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("DFTRACE_ENABLE", "0", "enabled", False),
        ("DFTRACE_LOG_FILE", "out/run", "log_file", Path("out/run")),
        ("DFTRACE_COMPRESSION", "ZSTD", "compression", "zstd"),
        ("DFTRACE_COMPRESSION_LEVEL", "6", "compression_level", 6),
        ("DFTRACE_COMPRESSION_LEVEL", "none", "compression_level", None),
        ("DFTRACE_TIMESTAMPS", "epoch_us", "timestamps", "epoch_us"),
        ("DFTRACE_ARGS", "off", "args", False),
        ("DFTRACE_IO", "no", "io", False),
        ("DFTRACE_WRITE_BUFFER_BYTES", "65536", "write_buffer_bytes", 65536),
        ("DFTRACE_SYSTEM_COUNTERS_S", "0.5", "system_counters_s", 0.5),
        ("DFTRACE_LOG_LEVEL", "debug", "log_level", "DEBUG"),
        ("DFTRACER_ENABLE", "0", "enabled", False),
        ("DFTRACER_LOG_FILE", "out/run", "log_file", Path("out/run")),
        ("DFTRACER_INC_METADATA", "0", "args", False),
        ("DFTRACER_TRACE_COMPRESSION", "0", "compression", "none"),
        ("DFTRACER_TRACE_COMPRESSION", "1", "compression", "gzip"),
        ("DFTRACER_DISABLE_IO", "1", "io", True),  # of interception, which there is none of here
        ("DFTRACER_WRITE_BUFFER_SIZE", "65536", "write_buffer_bytes", 65536),
        ("DFTRACER_LOG_LEVEL", "WARN", "log_level", "WARNING"),
    ],
)
def test_environment(variable: str, text: str, field: str, value: object) -> None:
    assert getattr(load_config(environ={variable: text}), field) == value


def test_our_variable_wins_over_the_alias() -> None:
    environ = {"DFTRACER_LOG_FILE": "theirs", "DFTRACE_LOG_FILE": "ours"}
    assert load_config(environ=environ).log_file == Path("ours")


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_config(environ={"DFTRACE_RANK": "", "DFTRACER_ENABLE": " "}) == Config()


def test_every_field_has_a_variable_and_a_description() -> None:
    for row in SETTINGS.values():
        assert row.variable.startswith("DFTRACE_")
        assert row.about
        assert accepted_values(row)


def test_fields_that_may_be_none_are_known_to_the_environment() -> None:
    for name, row in SETTINGS.items():
        environ = {row.variable: "none"}
        if row.optional:
            assert getattr(load_config(environ=environ), name) is None
        elif name not in {"auto_parts", "compression", "log_file", "plugins"}:
            with pytest.raises(ConfigError):
                load_config(environ=environ)


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        ({"DFTRACE_COMPRESSION": "lz4"}, ("DFTRACE_COMPRESSION", "'lz4'", "'gzip', 'zstd'")),
        ({"DFTRACER_INC_METADATA": "2"}, ("DFTRACER_INC_METADATA", "'2'", "true or false")),
        ({"DFTRACE_RANK": "first"}, ("DFTRACE_RANK", "'first'", "whole number")),
        ({"DFTRACE_WRITE_BUFFER_BYTES": "1"}, ("DFTRACE_WRITE_BUFFER_BYTES", "4096")),
        ({"DFTRACE_SYSTEM_COUNTERS_S": "nan"}, ("DFTRACE_SYSTEM_COUNTERS_S", "0.01")),
        ({"DFTRACE_CONFIG": "/no/such.yaml"}, ("/no/such.yaml", "No such file")),
    ],
)
def test_a_bad_variable_is_named_with_what_is_accepted(
    environ: dict[str, str], parts: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ=environ)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("\nflush_intervall_ms: 1\n", 2, "did you mean 'flush_interval_ms'"),
        ("rank: 1\noverflow: block\n", 2, "'wait' or 'drop'"),
        ("rank: true\n", 1, "whole number"),
        ("rank: 1\nrank: 2\n", 2, "given twice"),
        ("- rank\n", 1, "key: value"),
        ("rank: [1\n", 2, "not YAML"),
        ("data_dir: !!python/object/apply:os.getcwd []\n", 1, "not YAML"),
        ("compression: zstd\ncompression_level: 20\n", 2, "1 to 19"),
    ],
)
def test_a_bad_file_is_named_with_the_line(tmp_path: Path, text: str, line: int, part: str) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ={})
    assert f"{file}:{line}: " in str(caught.value)
    assert part in str(caught.value)


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text("# nothing yet\n")
    assert load_config(file, environ={}) == Config()


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "trace.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(file, environ={})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ={"DFTRACE_IO": "maybe"}, overflow="block", rank=-1)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "environment variable DFTRACE_IO",
        "overflow",
        "rank",
    ]


def test_an_unknown_argument_is_met_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'compression'"):
        load_config(environ={}, compresion="gzip")
    with pytest.raises(ConfigError, match="did you mean 'compression'"):
        Config(compresion="gzip")  # type: ignore[call-arg]


def test_a_rule_over_two_fields_names_both_sources() -> None:
    with pytest.raises(ConfigError, match=r"DFTRACE_RANK.*world_size.*does not exist"):
        load_config(environ={"DFTRACE_RANK": "8"}, world_size=8)


def test_the_error_is_caught_as_ours_and_as_a_value_error() -> None:
    for kind in (DftraceError, ValueError):
        with pytest.raises(kind):
            Config(rank=-1)


def test_a_level_is_ignored_where_nothing_is_compressed() -> None:
    assert Config(compression="none", compression_level=99).compression_level == 99


def test_the_config_is_frozen_and_survives_pickling() -> None:
    config = Config(rank=1, world_size=2)
    with pytest.raises(ValueError, match="frozen"):
        config.rank = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        del config.rank
    assert config != Config(rank=1, world_size=3)
    assert len({config, Config(world_size=2.0, rank="1"), Config()}) == 2
    assert "rank=1, world_size=2, layout=None" in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config


class Preset(Config):
    """A user's own settings."""

    purpose: str = "tests"


def test_a_class_made_of_the_config_has_its_settings() -> None:
    preset = Preset(rank=1, world_size=2)
    assert (preset.rank, preset.purpose, dict(preset)) == (
        1,
        "tests",
        dict(Config(rank=1, world_size=2)),
    )
    assert pickle.loads(pickle.dumps(preset)) == preset
    with pytest.raises(ConfigError, match="rank: -1 is not accepted"):
        Preset(rank=-1)


class TestMisspeltVariables:
    @pytest.fixture(autouse=True)
    def _forget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(config_sources, "_told", ToldOnce())

    def test_told_once_with_a_near_name(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "dftrace_ai")
        for _ in range(2):
            load_config(environ={"DFTRACE_LOGFILE": "x"})
        assert len(caplog.messages) == 1
        assert "DFTRACE_LOGFILE" in caplog.text
        assert "DFTRACE_LOG_FILE?" in caplog.text

    @pytest.mark.parametrize(
        "environ",
        [
            {"DFTRACE_RUN": "ab12"},
            {"DFTRACE_SOMETHING_ELSE_ALTOGETHER": "1"},
            {"LOGFILE": "x"},
            # A child of a traced run would repeat what its parent said.
            {"DFTRACE_RUN": "ab12", "DFTRACE_LOGFILE": "x"},
        ],
    )
    def test_others_are_left_alone(
        self, environ: dict[str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        load_config(environ=environ)
        assert not caplog.messages
