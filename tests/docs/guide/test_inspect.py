"""The examples of tensor inspection leave what their page says; the page on its config says what the reader does."""

from __future__ import annotations

import re

import pytest
import yaml
from perfetto.engine import counters

from dftrace_ai.inspect.config import LayerInfo, layer_plan, load, names
from dftrace_ai.inspect.config.grammar import FEATURE_MODELS, Layers
from dftrace_ai.inspect.numerics.statistics import (
    BLOCK_PREFIXES,
    BLOCK_RANGE,
    COLUMNWISE,
    FP8_PREFIXES,
    NVFP4_STATS,
    PLAIN_FP8_STATS,
    TENSOR_STATS,
)
from docs.conftest import ExampleRun, RunExample
from docs.pages import DOCS, EXAMPLES, Block, blocks, plain, section, table

PAGE = DOCS / "guide" / "inspect.md"
LINE = re.compile(r"INFO - (\S+)\s+iteration=(\d+)\s+value=(\S+)\n")
STEPS = 20


@pytest.fixture(scope="module")
def trained(run_example: RunExample) -> ExampleRun:
    """What the example of training leaves."""
    return run_example("inspect_training.py")


def log(run: ExampleRun, directory: str) -> str:
    return (run.folder / "out" / directory / "nvdlfw_inspect_globalrank-0.log").read_text()


def test_the_page_shows_the_config() -> None:
    config = (EXAMPLES / "inspect_training.yaml").read_text()
    assert f"```yaml\n{config}```" in PAGE.read_text()


def test_the_statistics_are_those_of_the_config(trained: ExampleRun) -> None:
    found = LINE.findall(log(trained, "nvdlfw_inspect_statistics_logs"))
    steps: dict[str, set[int]] = {}
    for name, step, _ in found:
        steps.setdefault(name, set()).add(int(step))
    assert steps["model.blocks.0.fc1_gradient_std"] == {0, 10}
    assert steps["model.blocks.1.attention.in_proj_activation_max"] == {2, 3, 4, 5}
    assert steps["model.blocks.1.attention.out_proj_gradient_underflows%"] == {0, 10}
    assert not [name for name in steps if "head" in name]
    shown = next(line for line in PAGE.read_text().splitlines() if "in_proj_activation_max" in line)
    assert len(shown) == len(
        next(
            x
            for x in log(trained, "nvdlfw_inspect_statistics_logs").splitlines()
            if "in_proj_activation_max" in x
        )
    )


def test_the_main_log_tells_the_plan(trained: ExampleRun) -> None:
    told = log(trained, "nvdlfw_inspect_logs").splitlines()
    shown = [line for line in PAGE.read_text().splitlines() if " gemm " in line and "INFO" in line]
    assert len(shown) == 2
    assert set(shown) <= set(told)


def test_tensorboard_has_the_same_numbers(trained: ExampleRun) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained.folder / "out" / "tensorboard"))
    events.Reload()
    written = {
        (name, int(step)): value
        for name, step, value in LINE.findall(log(trained, "nvdlfw_inspect_statistics_logs"))
    }
    curves = {
        (tag, event.step): f"{event.value:.4f}"
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
    }
    assert curves == written


def test_the_numbers_lie_in_the_steps_of_the_trace(trained: ExampleRun) -> None:
    trace = trained.trace
    forwards, backwards = trace.named("forward"), trace.named("backward")
    assert len(forwards) == len(backwards) == STEPS
    for event in trace.named("model.blocks.0.fc1:gradient", "tensor_stats"):
        span = backwards[event.user["iteration"]]
        assert span.ts_ns <= event.ts_ns <= span.end_ns
    activations = trace.named("model.blocks.0.attention.in_proj:activation", "tensor_stats")
    assert {event.user["iteration"] for event in activations} == {0, 2, 3, 4, 5, 10}
    for event in activations:
        span = forwards[event.user["iteration"]]
        assert span.ts_ns <= event.ts_ns <= span.end_ns
        assert trace.thread_names[event.tid] == "tensor stats"
    drawn = {sample.track for sample in counters(trace.path)}
    assert "model.blocks.0.fc1:gradient std" in drawn
    assert not trace.named("nonfinite")


def test_would_fp8_hurt(run_example: RunExample) -> None:
    found = run_example("fp8_per_gemm.py").stdout.splitlines()
    shown = PAGE.read_text().split("It printed:\n\n```text\n")[1].split("```")[0].splitlines()
    assert [line.split("loss")[0] for line in found] == [line.split("loss")[0] for line in shown]
    losses = [float(line.split("loss")[1].split()[0]) for line in found]
    assert losses[0] < 3.5
    # FP8 does change the training, and by little.
    assert 0 < max(abs(loss - losses[0]) for loss in losses[1:]) < 0.05


CONFIG_PAGE = DOCS / "guide" / "inspect-config.md"


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("block", blocks(CONFIG_PAGE, "yaml"), ids=str)
def test_the_configs_are_accepted(block: Block) -> None:
    config = load(yaml.safe_load(block.text))
    assert config.sections
    assert config.warnings == ()


def test_the_struct_does_what_the_page_says() -> None:
    (_, _, block) = blocks(CONFIG_PAGE, "yaml")
    (read,) = load(yaml.safe_load(block.text)).sections.values()
    plan = layer_plan(read, LayerInfo("model.fc1"))
    assert {key: (how.format, how.margin) for key, how in plan.modify.items()} == {
        ("fprop", "activation"): ("E4M3", 0),
        ("fprop", "weight"): ("E4M3", 0),
        ("dgrad", "gradient"): ("E5M2", 1),
    }


def test_the_statistics_are_all_explained() -> None:
    page = (DOCS / "guide" / "inspect.md").read_text()
    rows = page.partition("| statistic | |\n")[2].partition("\n\n")[0].splitlines()
    listed = [name for row in rows for name in named(row.split("|")[1])]
    assert sorted(listed) == sorted([*TENSOR_STATS, *PLAIN_FP8_STATS])


def test_the_keys_of_a_selection_are_all_there() -> None:
    rows = table(section(CONFIG_PAGE, "Layers"))
    assert [plain(row[0]) for row in rows] == list(Layers.model_fields)


def test_the_features_are_all_there_with_their_other_names() -> None:
    listed = {plain(row[0]): named(row[2]) for row in table(section(CONFIG_PAGE, "Features"))}
    assert listed == {
        name: [alias for alias, known in names.FEATURE_ALIASES.items() if known == name]
        for name in names.FEATURES
    }


def test_the_keys_of_the_features_are_all_there() -> None:
    logging = list(names.LOG_FEATURES)
    described: dict[str, set[str]] = {name: {"enabled"} for name in FEATURE_MODELS}
    for keys, of, accepted in table(section(CONFIG_PAGE, "Keys")):
        features = [*named(of), *(logging if "the Log features" in of else [])]
        for feature in features:
            described[feature] |= set(named(keys))
        values = named(accepted)
        if "gemms" in keys:
            assert values == list(names.GEMMS)
        elif "tensors" in keys:
            assert values == list(names.TENSORS)
        elif "quant_format" in keys:
            assert values == list(names.FORMATS)
        elif "stats" in keys:
            assert (
                values
                == {
                    "LogTensorStats": [*TENSOR_STATS, BLOCK_RANGE],
                    "LogFp8TensorStats": [
                        *(*PLAIN_FP8_STATS, *FP8_PREFIXES, *BLOCK_PREFIXES, COLUMNWISE)
                    ],
                    "LogNvfp4TensorStats": [*(s[len("nvfp4_") :] for s in NVFP4_STATS), "nvfp4_"],
                }["".join(features)]
            )
    assert described == {name: set(model.model_fields) for name, model in FEATURE_MODELS.items()}
