"""Configs at random: most of what a file may say, right and wrong, as people write it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

FEATURES = [
    *("LogTensorStats", "LogFp8TensorStats", "DisableFp8Gemm", "DisableFp8Layer"),
    *("PerTensorScaling", "FakeQuant", "DisableQuantizationGEMM", "logfp8tensorstats"),
    *("DumpTensors", "LogNvfp4TensorStats"),
]
TENSORS = ["activation", "weight", "gradient", "output", "dgrad", "wgrad", "Weight"]
GEMMS = ["fprop", "dgrad", "wgrad", "FPROP"]
STATS = [
    *("min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range", "amax"),
    *("underflows%", "overflows%", "Underflows", "mse", "scale_inv_min"),
    *("fp8_current_scaling_mse", "fp8_delayed_scaling_underflows%"),
    *("mxfp8_mse", "fp8_block_scaling_scale_inv_min_columnwise", "nvfp4_mse"),
]
BLOCK_RANGES: list[Any] = [
    {},
    {"block_size": 16},
    {"block_size": 2.0, "dims": 2},
    {"block_size": 0},
    {"block_size": True},
    {"dims": 3},
    {"dims": "1"},
    {"size": 4},
    None,
]
LAYERS: dict[str, list[Any]] = {
    "layer_types": [["fc1"], "all", ["all"], []],
    "layer_type": [["fc1"]],
    "layer_numbers": [[0, "2-5"], "all", 3, ["all"], "3", "1 - 2", " ALL ", 2.0, [1.5]],
    "exact_layer_names": [["a"], "a"],
    "layer_name_regex_pattern": ["a.*", "(", "(a+)+$"],
}
ODD = [None, True, False, 0, 1, -1, 2.0, 1.5, "x", "", [], {}, ["x"], [1], "2", [None], {"a": 1}]
WINDOWS = [None, [], [[0, 3]], [[0, None]], [[1, -1]], [[3]], [[0, 2], [4, 6]]]


class _Writer:
    """Writes configs; what it chooses depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)

    def happens(self, share: float) -> bool:
        return self.choose.random() < share

    def mostly(self, value: Any, odd: float = 0.05) -> Any:
        return self.choose.choice(ODD) if self.happens(odd) else value

    def one(self, values: list[Any], odd: float = 0.05) -> Any:
        return self.mostly(self.choose.choice(values), odd)

    def names(self, known: list[str]) -> Any:
        if self.happens(0.15):
            return self.one(known)
        count = self.choose.choice([0, 1, 1, 2, 3])
        return self.mostly([self.one(known, 0.03) for _ in range(count)])

    def schedule(self) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        if self.happens(0.4):
            keys["freq"] = self.one([1, 2, 5], 0.15)
        for key in ("start_step", "end_step"):
            if self.happens(0.2):
                keys[key] = self.one([None, -1, 0, 5], 0.1)
        if self.happens(0.15):
            keys["start_end_list"] = self.one(WINDOWS, 0.1)
        return keys

    def statistics(self) -> dict[str, Any]:
        key = "type" if self.happens(0.1) else "stats"
        names = self.names(STATS)
        if isinstance(names, list) and self.happens(0.15):
            names.append({"max_blockwise_dynamic_range": self.one(BLOCK_RANGES)})
        return ({key: names} if self.happens(0.85) else {}) | self.schedule()

    def dumped(self) -> dict[str, Any]:
        asked = ("high_precision_tensor", "quantized_tensor")
        return {
            key: self.one([True, False]) for key in asked if self.happens(0.5)
        } | self.schedule()

    def format(self) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        if self.happens(0.5):
            keys["quant_format"] = self.one(
                ["FP8E4M3", "E5M2", "fp8e5m2", "MXFP8E4M3", "MXFP8"], 0.1
            )
        return keys | self.margin()

    def margin(self) -> dict[str, Any]:
        return {"margin": self.one([0, 1, -3, 200, 201], 0.1)} if self.happens(0.3) else {}

    def struct(
        self, kind: str, known: list[str], inner: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """A list of names, a struct of them, both or neither."""
        keys: dict[str, Any] = {}
        if self.happens(0.7):
            keys[f"{kind}s"] = self.names(known)
        if self.happens(0.4):
            items = []
            for _ in range(self.choose.randint(0, 2)):
                item = {kind: self.one(known, 0.04)} | inner()
                if self.happens(0.03):
                    item[self.choose.choice(["enabled", "bits", "tensor", "gemm"])] = True
                if self.happens(0.02):
                    item.pop(kind, None)
                items.append(self.mostly(item, 0.02))
            keys[f"{kind}s_struct"] = self.mostly(items)
        return keys

    def feature(self, name: str, tensors: list[str]) -> Any:
        kind = name.lower()
        keys: dict[str, Any] = {}
        if self.happens(0.96):
            keys["enabled"] = self.mostly(self.happens(0.93), 0.03)
        if kind.startswith("log"):
            keys |= self.statistics() | self.struct("tensor", tensors, self.statistics)
        elif kind.startswith("dump"):
            keys |= self.dumped() | self.struct("tensor", tensors, self.dumped)
        elif kind in {"pertensorscaling", "fakequant"}:
            own = self.format if kind == "fakequant" else self.margin

            def of_tensors() -> dict[str, Any]:
                return own() | self.struct("tensor", TENSORS, own)

            keys |= of_tensors() | self.struct("gemm", GEMMS, of_tensors)
        elif "layer" not in kind or self.happens(0.1):
            keys |= self.struct("gemm", GEMMS, dict)
        if self.happens(0.03):
            keys[self.choose.choice(["foo", "freqq", "layers"])] = 1
        return self.mostly(keys, 0.03)

    def section(self) -> Any:
        keys: dict[str, Any] = {}
        if self.happens(0.97):
            keys["enabled"] = self.mostly(self.happens(0.93), 0.03)
        if self.happens(0.97):
            chosen = self.choose.sample(sorted(LAYERS), self.choose.choice([0, 1, 1, 1, 2]))
            keys["layers"] = self.mostly({key: self.one(LAYERS[key], 0.1) for key in chosen}, 0.03)
        if self.happens(0.8):
            which = self.choose.choices(FEATURES, k=self.choose.randint(0, 2))
            found: dict[str, Any] = {name: self.feature(name, TENSORS) for name in which}
            if self.happens(0.03):
                found["Foo"] = {"enabled": True}
            namespaces = ["transformer_engine"] * 6 + ["torch", "dftrace_ai", "TORCH", "te"]
            keys[self.choose.choice(namespaces)] = self.mostly(found, 0.04)
        if self.happens(0.2):
            name = self.choose.choice(["LogTensorStats", "logtensorstats"])
            keys[name] = self.feature(name, ["hidden", "x"])
        return self.mostly(keys, 0.02)


def random_configs(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Configs of a section or two."""
    writer = _Writer(seed)
    for _ in range(count):
        sections = 2 if writer.happens(0.2) else 1
        yield {f"section{number}": writer.section() for number in range(sections)}
