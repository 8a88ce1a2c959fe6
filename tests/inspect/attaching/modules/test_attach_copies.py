"""Copies, pickles, state dicts and wrappers of attached models."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from inspect_sessions import session, statistics_of
from torch import nn

import dftrace_ai.inspect as debug_api


class Scaled(nn.Linear):
    """A Linear that needs an argument to be made, and has a state of its own."""

    def __init__(self, size, factor):
        super().__init__(size, size)
        self.factor = factor

    def __getstate__(self):
        return {**self.__dict__, "saved": True}


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.gate


def model_of_all_kinds():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), Scaled(4, 2), Gate())


STATISTICS = statistics_of(["l1_norm"], ["activation", "output"])


@pytest.mark.parametrize("due", [True, False])
def test_a_copy_has_weights_of_its_own_and_is_not_attached(due, tmp_path):
    x = torch.randn(3, 4)
    config = STATISTICS if due else statistics_of(["min"], ["activation"], start_step=9)
    with session(config, tmp_path) as values:
        model = model_of_all_kinds()
        debug_api.attach(model)
        twin = copy.deepcopy(model)
        shallow = copy.copy(model[0])
        assert [type(one) for one in twin] == [nn.Linear, nn.LayerNorm, Scaled, Gate]
        assert type(shallow) is nn.Linear
        assert shallow.weight is model[0].weight
        assert twin[2].factor == 2
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        twin(x)
        assert torch.equal(twin(x), torch.zeros(3, 4))
        assert not torch.equal(model(x), torch.zeros(3, 4))
        debug_api.step()
        # The copy was not looked at.
        assert len(values.found) == (8 if due else 0)
        if due:
            total = x.abs().sum().item()
            assert values["model.0_activation_l1_norm", 0] == pytest.approx(total, rel=1e-6)
        # One may be attached beside the other.
        debug_api.attach(twin, name="twin")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_that_of_the_original_class(protocol, tmp_path):
    plain = model_of_all_kinds()
    with session(STATISTICS, tmp_path):
        model = copy.deepcopy(plain)
        debug_api.attach(model)
        attention = nn.MultiheadAttention(4, 2)
        debug_api.attach(attention, name="attention")
        data = pickle.dumps(model, protocol)
        file = io.BytesIO()
        torch.save(model, file)
        # Whoever reads it needs no package of ours.
        assert b"dftrace" not in data + pickle.dumps(attention, protocol)
        assert isinstance(model[0], nn.Linear)
        assert isinstance(model[2], Scaled)
        assert repr(model) == repr(plain)
        file.seek(0)
        for loaded in (pickle.loads(data), torch.load(file, weights_only=False)):
            kinds = [type(one) for one in loaded]
            assert kinds == [nn.Linear, nn.LayerNorm, Scaled, Gate]
            for name, tensor in plain.state_dict().items():
                assert torch.equal(loaded.state_dict()[name], tensor)
            assert not any(key.startswith("_inspect") for one in loaded for key in vars(one))
            assert loaded[2].saved


def test_modules_that_copy_themselves(tmp_path):
    parametrize = torch.nn.utils.parametrize

    class Half(nn.Module):
        def forward(self, weight):
            return weight / 2

    with session(STATISTICS, tmp_path) as values:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        for layer in model:
            parametrize.register_parametrization(layer, "weight", Half())
        debug_api.attach(model)
        twin = copy.deepcopy(model)
        with torch.no_grad():
            twin[0].parametrizations.weight.original.zero_()
            twin[0].bias.zero_()
        x = torch.randn(3, 4)
        assert torch.equal(twin[0](x), torch.zeros(3, 4))
        assert model[0](x).abs().sum() > 0
        debug_api.step()
        total = x.abs().sum().item()
        assert values["model.0_activation_l1_norm", 0] == pytest.approx(total, rel=1e-6)


def test_a_module_that_changes_its_class_has_to_run_first(tmp_path):
    with session(STATISTICS, tmp_path) as values:
        model = nn.Sequential(nn.LazyLinear(4))
        with pytest.raises(RuntimeError, match=r"model\.0.*run the model once"):
            debug_api.attach(model)
        model(torch.randn(3, 4))
        debug_api.attach(model)
        model(torch.randn(3, 4))
        debug_api.step()
        assert len(values.found) == 2


def test_state_dicts_and_their_names_stay(tmp_path):
    plain = model_of_all_kinds()
    with session(STATISTICS, tmp_path):
        model = copy.deepcopy(plain)
        debug_api.attach(model)
        assert list(model.state_dict()) == list(plain.state_dict())
        other = model_of_all_kinds()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1)
        model.load_state_dict(other.state_dict())
        x = torch.randn(3, 4)
        assert torch.equal(model(x), other(x))
        assert [name for name, _ in model.named_modules()] == [
            name for name, _ in plain.named_modules()
        ]


def test_modules_move_and_change_their_format(tmp_path):
    with session(STATISTICS, tmp_path) as values:
        model = model_of_all_kinds()
        debug_api.attach(model)
        model.to(torch.float64)
        model(torch.randn(3, 4, dtype=torch.float64)).sum().backward()
        debug_api.step()
    assert len(values.found) == 8


def test_threads_that_share_a_model(tmp_path):
    """The replicas of DataParallel are copies attribute by attribute."""
    with session(STATISTICS, tmp_path) as values:
        layer = nn.Linear(4, 4)
        debug_api.attach(layer)
        replica = layer._replicate_for_data_parallel()
        replica.weight, replica.bias = layer.weight, layer.bias
        x = torch.randn(3, 4)
        assert torch.equal(replica(x), layer(x))
        debug_api.step()
        total = 2 * x.abs().sum().item()
        assert values["model_activation_l1_norm", 0] == pytest.approx(total, rel=1e-6)
