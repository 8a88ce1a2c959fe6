"""The names of the layers of a model, and which of them have GEMMs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

import dftrace_ai.inspect as debug_api  # noqa: E402
from dftrace_ai.inspect.naming import layers_of  # noqa: E402

infer_and_assign_layer_names = debug_api.infer_and_assign_layer_names


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Renamed(nn.Linear):
    pass


class Block(nn.Module):
    def __init__(self, number: int | None = None) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 4)
        self.act = nn.ReLU()
        if number is not None:
            self.layer_number = number


class Wrapper(nn.Module):
    """What DistributedDataParallel looks like from outside."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


def names(model: nn.Module, name: str | None = None) -> list[str]:
    return [layer.name for layer in layers_of(model, name)]


def kinds(model: nn.Module) -> dict[str, str]:
    return {layer.name: layer.kind for layer in layers_of(model)}


def test_layers_have_parameters_and_are_called_by_their_path() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.ModuleDict({"head": nn.Linear(4, 2)}))
    assert names(model) == ["model.0", "model.2.head"]
    assert names(model, "student") == ["student.0", "student.2.head"]
    assert names(nn.Linear(2, 2)) == ["model"]


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList([torch.ones(4)])
        self.shifts = nn.ParameterDict({"0": nn.ParameterList([torch.zeros(4)])})

    def forward(self, x):
        return x * self.scales[0] + self.shifts["0"][0]


class AskedLate(nn.Module):
    """As a layer of Keras: its dict of parameters is there once they are asked for."""

    def named_parameters(self, *args, **kwargs):
        if not hasattr(self, "held"):
            self.held = nn.ParameterDict({"a": torch.ones(1)})
        return super().named_parameters(*args, **kwargs)


def test_lists_of_parameters_belong_to_who_holds_them() -> None:
    model = nn.Sequential(Listed(), nn.ModuleDict({"in": Listed()}), nn.ReLU(), AskedLate())
    assert names(model) == ["model.0", "model.1.in", "model.3"]
    assert set(kinds(model).values()) == {"other"}


def test_which_layers_have_gemms() -> None:
    patched = nn.Linear(4, 4)
    patched.forward = lambda x: x
    model = nn.ModuleDict(
        {
            "linear": nn.Linear(4, 4),
            "subclass": Renamed(4, 4),
            "foreign": Doubled(4, 4),
            "patched": patched,
            "bilinear": nn.Bilinear(2, 2, 2),
            "conv": nn.Conv1d(2, 2, 1),
            "embedding": nn.Embedding(3, 3),
            "norm": nn.LayerNorm(3),
        }
    )
    found = kinds(model)
    assert [name for name, kind in found.items() if kind == "linear"] == [
        "model.linear",
        "model.subclass",
    ]
    assert len(found) == 8
    assert set(found.values()) == {"linear", "other"}
    (info,) = (one.info for one in layers_of(model) if one.name == "model.foreign")
    assert (info.class_name, info.has_gemms) == ("Doubled", False)


def test_the_projections_of_an_attention_are_layers() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, 16)
    found = {layer.name: (layer.kind, layer.part) for layer in layers_of(encoder)}
    assert found == {
        "model.self_attn.in_proj": ("attention", "in_proj"),
        "model.self_attn.out_proj": ("attention", "out_proj"),
        "model.linear1": ("linear", ""),
        "model.linear2": ("linear", ""),
        "model.norm1": ("other", ""),
        "model.norm2": ("other", ""),
    }
    other = nn.MultiheadAttention(8, 2, kdim=4, vdim=4)
    assert [layer.part for layer in layers_of(other)] == ["q_proj", "k_proj", "v_proj", "out_proj"]
    assert names(other)[0] == "model.q_proj"


def test_the_transposed_linear_of_transformers_is_known() -> None:
    def forward(self, x):
        return x @ self.weight

    def init(self) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.zeros(2, 3))

    body = {"forward": forward, "__init__": init, "__module__": "transformers.pytorch_utils"}
    conv = type("Conv1D", (nn.Module,), body)
    assert [layer.kind for layer in layers_of(conv())] == ["conv1d"]
    assert [layer.kind for layer in layers_of(type("Own", (conv,), {"forward": forward})())] == [
        "conv1d"
    ]
    changed = type("Changed", (conv,), {"forward": lambda self, x: x})
    assert [layer.kind for layer in layers_of(changed())] == ["other"]


def test_a_name_of_its_own_wins() -> None:
    model = nn.ModuleDict({"a": Block(), "b": Block()})
    model["a"].fc1.name = "stem"
    model["b"].fc1.name = 3
    assert names(model) == ["stem", "model.b.fc1"]


def test_a_name_of_a_module_is_the_beginning_of_those_within() -> None:
    model = nn.ModuleDict({"stem": nn.Linear(2, 2), "body": nn.ModuleList([Block(), Block()])})
    model["body"][0].name = "first"
    assert names(model) == ["model.stem", "first.fc1", "model.body.1.fc1"]
    model.name = "decoder"
    assert names(model) == ["decoder.stem", "first.fc1", "decoder.body.1.fc1"]
    assert names(Wrapper(model)) == names(model)
    assert names(model, "student") == ["student.stem", "first.fc1", "student.body.1.fc1"]
    model["body"][0].fc1.name = "own"
    assert names(model)[1] == "own"
    attention = nn.ModuleDict({"attn": nn.MultiheadAttention(4, 2)})
    attention.name = "encoder"
    assert names(attention) == ["encoder.attn.in_proj", "encoder.attn.out_proj"]


def test_a_name_that_several_modules_have_is_none_of_a_path() -> None:
    model = nn.ModuleList([Block(), Block()])
    for block in model:
        block.name = "block"
    assert names(model) == ["model.0.fc1", "model.1.fc1"]


def test_a_name_that_cannot_be_asked_for_is_none() -> None:
    class Odd(nn.Sequential):
        @property
        def name(self) -> str:
            raise RuntimeError

    assert names(Odd(nn.Linear(2, 2))) == ["model.0"]


def test_every_layer_has_a_name_of_its_own() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "c": nn.Linear(2, 2)})
    model["a"].name = model["b"].name = "same"
    assert names(model) == ["same", "model.b", "model.c"]
    model["a"].name = "model.c"
    model["b"].name = "model.c"
    assert names(model) == ["model.c", "model.b", "model.c#2"]


def test_a_module_used_twice_is_one_layer() -> None:
    shared = nn.Linear(2, 2)
    assert names(nn.ModuleDict({"a": shared, "b": nn.ModuleDict({"c": shared})})) == ["model.a"]


def test_wrappers_are_no_part_of_a_name() -> None:
    block = nn.ModuleDict({"layers": nn.ModuleList([Block(), Block()])})
    plain = ["model.layers.0.fc1", "model.layers.1.fc1"]
    assert names(Wrapper(block)) == plain
    assert names(Wrapper(Wrapper(block))) == plain
    assert names(compiled(block)) == plain
    assert names(Wrapper(compiled(block))) == plain
    inner = copy.deepcopy(block)
    inner["layers"][1] = compiled(inner["layers"][1])
    assert names(inner) == plain
    # A part of a model that happens to be called so.
    part = nn.ModuleDict({"net": nn.ModuleDict({"module": nn.Linear(2, 2)})})
    assert names(part) == ["model.net.module"]


def test_a_parametrized_linear_is_one_layer() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 2, bias=False)))
    assert kinds(model) == {"model.0": "linear"}


def test_names_are_given_to_every_module() -> None:
    model = nn.ModuleDict({"layers": nn.ModuleList([Block(7), Block()]), "head": nn.Linear(2, 2)})
    infer_and_assign_layer_names(model)
    assert model.name == "model"
    assert not hasattr(model["layers"], "name")
    assert model["layers"][0].act.name == "model.layers.7.act"
    assert model["layers"][1].fc1.name == "model.layers.1.fc1"
    assert names(model) == ["model.layers.7.fc1", "model.layers.1.fc1", "model.head"]


def test_the_log_tells_each_name_that_is_given(tmp_path: Path) -> None:
    debug_api.initialize("", log_dir=tmp_path)
    model = nn.ModuleDict({"layers": nn.ModuleList([Block(7)]), "head": nn.Linear(2, 2)})
    infer_and_assign_layer_names(model)
    debug_api.end_debug()
    (log,) = tmp_path.glob("nvdlfw_inspect_logs/*")
    said = [line for line in log.read_text().splitlines() if "Assigned" in line]
    assert said == [
        f"INFO - Assigned layer name: model{path}"
        for path in ("", ".layers.7", ".layers.7.fc1", ".layers.7.act", ".head")
    ]


def test_names_are_given_to_several_parts() -> None:
    parts = [nn.ModuleDict({"layers": nn.ModuleList([Block(n)])}) for n in (1, 2)]
    infer_and_assign_layer_names(parts)
    assert [names(part) for part in parts] == [["model.layers.1.fc1"], ["model.layers.2.fc1"]]
    wrapped = Wrapper(nn.Sequential(nn.Linear(2, 2)))
    infer_and_assign_layer_names(wrapped)
    assert wrapped.module[0].name == "model.0"


def test_a_module_whose_name_cannot_be_set_keeps_it() -> None:
    class Fixed(nn.Linear):
        @property
        def name(self) -> str:
            return "fixed"

    model = nn.Sequential(Fixed(2, 2), nn.Linear(2, 2))
    infer_and_assign_layer_names(model)
    assert names(model) == ["fixed", "model.1"]
