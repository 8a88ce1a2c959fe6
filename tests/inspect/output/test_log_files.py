"""The log files: their names, their lines byte for byte, and the variables that steer them."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
import torch
from conftest import RunScript
from inspect_sessions import base_config, main_log, scalars, statistics_path

import dftrace_ai
import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.output.log_files import LogFile, StatisticsFile

LAYER = "transformer_layer.self_attention.layernorm_qkv_activation"
VALUES = {
    2: {"max": 4.3188, "min": -4.3386, "mean": 0.0, "std": 0.9998, "l1_norm": 130799.6953},
    3: {"max": 4.3184, "min": -4.3381, "mean": 0.0, "std": 0.9997, "l1_norm": 130788.1016},
    4: {"max": 4.3181, "min": -4.3377, "mean": 0.0, "std": 0.9996, "l1_norm": 130776.7969},
}
# As Transformer Engine's documentation shows them: iteration in column 85, value in column 119.
SHOWN = Path(__file__).with_name("seed_statistics.log")


def session(folder: Path) -> None:
    """One that logs a number."""
    debug_api.initialize(base_config(["max"]), log_dir=folder)
    debug_api.log_tensor_stats("fc", torch.ones(1), "activation")
    debug_api.end_debug()


def test_statistics_lines_are_those_of_transformer_engine(tmp_path: Path) -> None:
    file = StatisticsFile(tmp_path / "out.log")
    for iteration, values in VALUES.items():
        file.write(f"{LAYER}_", values, iteration)
    file.close()
    assert (tmp_path / "out.log").read_bytes() == SHOWN.read_bytes()
    lines = SHOWN.read_text().splitlines()
    assert {line.index("iteration=") for line in lines} == {85}
    assert {line.index("value=") for line in lines} == {119}


def test_long_names_and_odd_values_stay_readable(tmp_path: Path) -> None:
    file = StatisticsFile(tmp_path / "out.log")
    file.write("x" * 80, {"x" * 10: float("inf")}, 1_234_567)
    file.write("", {"x": float("-inf"), "a\nb": float("nan")}, 1)
    file.close()
    assert (tmp_path / "out.log").read_text().splitlines() == [
        f"INFO - {'x' * 90} iteration=1234567{' ' * 18}value=inf",
        f"INFO - x{' ' * 77}iteration=000001{' ' * 18}value=-inf",
        f"INFO - a\\nb{' ' * 74}iteration=000001{' ' * 18}value=nan",
    ]


def test_names_cannot_act_on_a_terminal_or_end_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evil = "a\x1b[2J\u2028\x85\r\n\ud800\tb\u00fc"
    debug_api.initialize(base_config(["max"]), log_dir=tmp_path)
    debug_api.log_tensor_stats(evil, torch.ones(1), "activation")
    debug_api.log_message(evil, level=30)
    debug_api.end_debug()
    escaped = "a\\x1b[2J\\u2028\\x85\\r\\n\\ud800\tb\u00fc"
    (line,) = statistics_path(tmp_path).read_text().splitlines()
    assert line.startswith(f"INFO - {escaped}_activation_max ")
    assert main_log(tmp_path)[-1] == f"WARNING - {escaped}"
    assert capfd.readouterr().err == f"NVDLFW INSPECT - WARNING - {escaped}\n"


def test_files_are_named_after_the_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    session(tmp_path)
    assert scalars(tmp_path, rank=3)
    assert main_log(tmp_path, rank=3)
    assert stat.S_IMODE(statistics_path(tmp_path, 3).stat().st_mode) == 0o600


def test_who_may_read_the_trace_may_read_the_logs(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        with dftrace_ai.tracing(log_file=tmp_path / "t", file_mode="0640"):
            session(tmp_path)
        session(tmp_path / "without a run")
    finally:
        os.umask(old)
    for folder, mode in ((tmp_path, 0o640), (tmp_path / "without a run", 0o600)):
        logs = list(folder.glob("nvdlfw*/*.log"))
        assert [stat.S_IMODE(log.stat().st_mode) for log in logs] == [mode] * 2


def test_logs_are_overwritten_or_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(tmp_path)
    session(tmp_path)
    assert len(scalars(tmp_path)) == 1
    for said in ("0", "false"):
        monkeypatch.setenv("NVDLFW_INSPECT_ENABLE_LOG_OVERWRITE", said)
        session(tmp_path)
    assert len(scalars(tmp_path)) == 3


def test_stamps_in_names_and_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVDLFW_INSPECT_ENABLE_LOG_TIMESTAMP", "1")
    monkeypatch.setenv("NVDLFW_INSPECT_LOG_TIMESTAMP", "20260102_030405")
    session(tmp_path)
    names = {path.name for path in tmp_path.rglob("*.log")}
    assert names == {"nvdlfw_inspect_20260102_030405_globalrank-0.log"}
    for path in tmp_path.rglob("*.log"):
        for line in path.read_text().splitlines():
            # As `logging` writes it, in both files.
            assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - INFO - ", line)
    # Without one it is made, and left for child processes.
    monkeypatch.delenv("NVDLFW_INSPECT_LOG_TIMESTAMP")
    session(tmp_path / "made")
    stamp = os.environ["NVDLFW_INSPECT_LOG_TIMESTAMP"]
    names = {path.name for path in (tmp_path / "made").rglob("*.log")}
    assert names == {f"nvdlfw_inspect_{stamp}_globalrank-0.log"}
    monkeypatch.delenv("NVDLFW_INSPECT_LOG_TIMESTAMP")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("", ["INFO", "WARNING", "ERROR"]),
        ("nonsense", ["INFO", "WARNING", "ERROR"]),
        ("debug", ["DEBUG", "INFO", "WARNING", "ERROR"]),
        ("Warning", ["WARNING", "ERROR"]),
        ("CRITICAL", []),
    ],
)
def test_the_level_of_the_main_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, kept: list[str]
) -> None:
    import logging

    monkeypatch.setenv("NVDLFW_INSPECT_LOG_LEVEL", said)
    debug_api.initialize(base_config(["max"]), log_dir=tmp_path)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        debug_api.log_message(f"mine {level}", level=level)
    debug_api.log_tensor_stats("fc", torch.ones(1), "activation")
    debug_api.end_debug()
    assert [line.split(" - ")[0] for line in main_log(tmp_path) if "mine" in line] == kept
    assert len(scalars(tmp_path)) == 1


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    path = statistics_path(tmp_path)
    path.parent.mkdir()
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        session(tmp_path)
    assert victim.read_text() == "keep me"
    path.unlink()
    session(tmp_path)
    assert len(scalars(tmp_path)) == 1


CLOSING = """
import os, resource, sys
from pathlib import Path
import torch
import dftrace_ai.inspect as debug_api
from inspect_sessions import base_config

def step(number):
    debug_api.log_tensor_stats("fc", torch.full((1,), float(number)), "activation")
    debug_api.log_message(f"message {number}")
    debug_api.step()

def usurped():
    files = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and os.path.exists(f"/proc/self/fd/{number}"):
            path = Path(sys.path[0], f"checkpoint{number}-{len(os.listdir(sys.path[0]))}")
            path.write_text("precious")
            os.dup2(os.open(path, os.O_RDWR), number)
            files[path] = number
    return files

os.chdir(sys.path[0])
debug_api.initialize(base_config(["max"]), log_dir="logs")
os.chdir("/")
step(0)
os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
step(1)
mine = usurped()
step(2)
mine |= usurped()
os.rename(Path(sys.path[0], "logs"), Path(sys.path[0], "moved"))
Path(sys.path[0], "logs").symlink_to("moved")  # by name it is found again
step(3)
mine |= usurped()
debug_api.end_debug()
assert len(mine) >= 4
for path, number in mine.items():
    assert path.read_text() == "precious"
    assert os.lseek(number, 0, os.SEEK_CUR) == 0
"""


def test_numbers_that_the_program_closes_and_uses_get_no_lines(
    run_script: RunScript, tmp_path: Path
) -> None:
    done = run_script(CLOSING, env={"PYTHONPATH": str(Path(__file__).parents[1])})
    logs = done.folder.parent / "moved"
    assert [(one.iteration, one.value) for one in scalars(logs)] == [
        (n, f"{n}.0000") for n in range(4)
    ]
    messages = [line for line in main_log(logs) if "message" in line]
    assert messages == [f"INFO - message {n}" for n in range(4)]
    assert done.stderr == ""


def test_a_log_that_is_removed_and_closed_is_begun_again(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "a.log", overwrite=True)
    file.write("one\n")
    file.flush()
    for number in map(int, os.listdir("/proc/self/fd")):
        if Path(f"/proc/self/fd/{number}").resolve() == tmp_path / "a.log":
            os.close(number)
    (tmp_path / "a.log").unlink()
    file.write("two\n")
    file.close()
    assert (tmp_path / "a.log").read_text() == "two\n"
