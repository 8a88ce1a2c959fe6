"""Calls that nobody should make, and places where nobody should call: refused, or harmless."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import clean_environment
from inspect_sessions import Values, base_config, main_log, scalars, statistics_of, statistics_path

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.config.features import custom_features, forget_custom_features
from dftrace_ai.inspect.output.log_files import LogFile


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    debug_api.end_debug()
    forget_custom_features()


ONE = torch.ones(2)


@pytest.mark.parametrize("closed", [True, False])
def test_a_process_without_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream if closed else None)
    debug_api.initialize(base_config(), log_dir=tmp_path, colour="red")
    debug_api.log_message("mine", level=40)
    debug_api.end_debug()
    assert "ERROR - mine" in main_log(tmp_path)


@pytest.mark.parametrize("wrong", ["5", 1.5, -1, None, [1]])
def test_what_is_no_iteration_is_refused_at_once(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="init_training_step"):
        debug_api.initialize(base_config(), log_dir=tmp_path, init_training_step=wrong)
    debug_api.initialize(base_config(), log_dir=tmp_path)
    with pytest.raises(ValueError, match="initialize_training_step"):
        debug_api.initialize_training_step(wrong)
    if wrong is not None:
        with pytest.raises(ValueError, match="iteration"):
            debug_api.log_tensor_stats("fc", ONE, "activation", iteration=wrong)
    debug_api.initialize_training_step(torch.tensor(7))  # type: ignore[arg-type]
    debug_api.log_tensor_stats("fc", ONE, "activation")
    debug_api.step()
    assert {one.iteration for one in scalars(tmp_path)} == {7}


@pytest.mark.parametrize(
    "given",
    [
        {"tensor": [1.0]},
        {"tensor": 1.0},
        {"layer_name": 3},
        {"layer_name": ["fc"]},
        {"tensor_name": ["activation"]},
        {"tensor_name": b"activation"},
    ],
)
def test_arguments_of_another_type_are_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    debug_api.initialize(base_config(), log_dir=tmp_path)
    call = {"layer_name": "fc", "tensor": ONE, "tensor_name": "activation", **given}
    with pytest.raises(TypeError, match=next(iter(given))):
        debug_api.log_tensor_stats(**call)
    assert scalars(tmp_path) == []


def test_features_of_a_failed_initialize_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import dftrace_ai.inspect as debug_api\n"
        "@debug_api.register_feature('Look')\n"
        "class Look:\n"
        "    def inspect_tensor(self, *args, **kw): pass\n"
    )
    (tmp_path / "b.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        debug_api.initialize(base_config(), str(tmp_path), log_dir=tmp_path)
    assert custom_features() == []
    (tmp_path / "b.py").unlink()
    debug_api.initialize(base_config(), str(tmp_path), log_dir=tmp_path)
    assert [one.name for one in custom_features()] == ["Look"]


def test_messages_may_be_anything_that_has_a_text(tmp_path: Path) -> None:
    debug_api.initialize(base_config(), log_dir=tmp_path)
    for message in (5, None, ValueError("bad"), b"x", ["a"]):
        debug_api.log_message(message)
    debug_api.log_message(5, layer_name="fc")
    assert main_log(tmp_path)[-6:] == [
        f"INFO - {text}" for text in ("5", "None", "bad", "b'x'", "['a']", "fc: 5")
    ]
    with pytest.raises(TypeError, match="level"):
        debug_api.log_message("x", level="INFO")  # type: ignore[arg-type]


def test_an_error_that_cannot_say_what_it_is(tmp_path: Path) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError

    class Logger:
        def log_scalar(self, name: str, value: float, iteration: int) -> None:
            raise MuteError

    debug_api.initialize(base_config(), log_dir=tmp_path, statistics_logger=Logger())
    assert debug_api.log_tensor_stats("fc", ONE, "activation")
    assert main_log(tmp_path)[-1].startswith("ERROR - Logger failed, which is told once: MuteError")


def test_loggers_that_call_back(tmp_path: Path) -> None:
    class Logger:
        def __init__(self) -> None:
            self.names: list[str] = []

        def log_scalar(self, name: str, value: float, iteration: int) -> None:
            self.names.append(name)
            if len(self.names) < 3:
                debug_api.log_tensor_stats(f"inner{len(self.names)}", ONE, "activation")
                debug_api.step()
            else:
                debug_api.end_debug()

    logger = Logger()
    debug_api.initialize(base_config(["max"]), log_dir=tmp_path, statistics_logger=logger)
    assert debug_api.log_tensor_stats("outer", ONE, "activation")["max"] == 1
    assert [name.split("_")[0] for name in logger.names] == ["outer", "inner1", "inner2"]
    debug_api.step()
    debug_api.initialize(base_config(["max"]), log_dir=tmp_path)


@pytest.fixture
def _eager_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Any, count: int = 6) -> None:
    """Run a function in threads; raise what any of them raises."""
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.mark.usefixtures("_eager_switches")
def test_a_model_that_runs_in_threads_loses_nothing(tmp_path: Path) -> None:
    values = Values()
    debug_api.initialize(
        statistics_of(["l1_norm"], ["activation", "weight"]),
        log_dir=tmp_path,
        statistics_logger=values,
    )
    model = torch.nn.Linear(4, 4)
    debug_api.attach(model)

    def work(_: int) -> None:
        for _ in range(200):
            model(torch.ones(1, 4))

    in_threads(work)
    debug_api.step()
    assert values["model_activation_l1_norm", 0] == 6 * 200 * 4
    weight = model.weight.detach().double().abs().sum().item()
    assert values["model_weight_l1_norm", 0] == pytest.approx(weight, rel=1e-6)


@pytest.mark.usefixtures("_eager_switches")
def test_calls_and_steps_of_many_threads(tmp_path: Path) -> None:
    debug_api.initialize(base_config(["max"]), log_dir=tmp_path)

    def work(number: int) -> None:
        for _ in range(150):
            debug_api.log_tensor_stats(f"fc{number}", ONE, "activation")
            if not number:
                debug_api.step()

    in_threads(work)
    debug_api.end_debug()
    assert len(scalars(tmp_path)) == 6 * 150


def test_a_pipe_in_place_of_a_log_is_refused_at_once(tmp_path: Path) -> None:
    path = statistics_path(tmp_path)
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"not a regular file|No such device"):
        debug_api.initialize(base_config(), log_dir=tmp_path)


def test_who_begins_the_same_file_anew_leaves_no_gap_in_it(tmp_path: Path) -> None:
    debug_api.initialize(base_config(["max"]), log_dir=tmp_path)
    for _ in range(5):
        debug_api.log_tensor_stats("mine", ONE, "activation")
    # As another process would.
    LogFile(statistics_path(tmp_path), overwrite=True).close()
    debug_api.log_tensor_stats("mine", ONE, "activation")
    debug_api.end_debug()
    assert [one.name for one in scalars(tmp_path)] == ["mine_activation_max"]


FULL = """
import os, resource, signal, sys
import torch
import dftrace_ai.inspect as debug_api
from inspect_sessions import base_config

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
debug_api.initialize(base_config(["max"]), log_dir=sys.argv[1])
files = len(os.listdir("/proc/self/fd"))
for number in range(200):
    assert debug_api.log_tensor_stats("fc", torch.ones(1), "activation")
    debug_api.log_message(f"message {number}")
    debug_api.step()
debug_api.end_debug()
assert len(os.listdir("/proc/self/fd")) == files - 2
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
debug_api.initialize(base_config(["max"]), log_dir=sys.argv[1] + "/again")
debug_api.log_tensor_stats("fc", torch.ones(1), "activation")
debug_api.end_debug()
"""


def test_files_that_can_take_no_more_do_not_end_the_training(tmp_path: Path) -> None:
    environment = clean_environment()
    paths = [str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the statistics file failed, which is told once") == 1
    assert 0 < statistics_path(tmp_path).stat().st_size <= 2000
    assert len(scalars(tmp_path / "again")) == 1
