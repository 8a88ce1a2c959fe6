"""What attached layers show of a step: which tensors, how often, of which models; what fails."""

from __future__ import annotations

import pytest
import torch
from inspect_sessions import ALL, main_log, section, session, statistics_of
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.collecting import observer


def test_schedules_of_tensors_and_a_counter_that_jumps(tmp_path):
    config = section(
        {
            "LogTensorStats": {
                "stats": ["max"],
                "tensors_struct": [
                    {"tensor": "activation", "freq": 3},
                    {"tensor": "output", "start_step": 2, "end_step": 4},
                    {"tensor": "weight", "start_end_list": [[0, 2], [5, 6], [20, 22]]},
                    {"tensor": "gradient", "freq": 4, "start_step": 1},
                ],
            }
        }
    )
    with session(config, tmp_path) as values:
        model = nn.Linear(5, 4)
        debug_api.attach(model)

        def run(count):
            for _ in range(count):
                model(torch.randn(2, 5)).sum().backward()
                debug_api.step()

        run(8)
        assert values.iterations("model_activation_max") == [0, 3, 6]
        assert values.iterations("model_output_max") == [2, 3, 4]
        assert values.iterations("model_weight_max") == [0, 1, 5]
        assert values.iterations("model_gradient_max") == [4]
        debug_api.initialize_training_step(20)
        run(3)
        assert values.iterations("model_activation_max") == [0, 3, 6, 21]
        assert values.iterations("model_weight_max") == [0, 1, 5, 20, 21]
        debug_api.initialize_training_step(2)
        run(1)
        assert len(values.found["model_output_max", 2]) == 2


def test_modules_that_do_not_train_are_passed_over_unless_asked_for(tmp_path):
    config = statistics_of(["l1_norm"], ["activation", "gradient"])
    for asked in (False, True):
        with session(config, tmp_path / str(asked)) as values:
            model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4))
            debug_api.attach(model, observe_eval=asked)
            model.eval()
            model(torch.ones(2, 5)).sum().backward()
            model.train()
            model(torch.ones(3, 5)).sum().backward()
            debug_api.step()
            elements = 5 * 5 if asked else 3 * 5
            assert values["model.0_activation_l1_norm", 0] == elements
            assert ("model.1_gradient_l1_norm", 0) in values


def test_a_tensor_that_is_never_there_is_absent(tmp_path):
    with session(statistics_of(["min"], ALL), tmp_path) as values:
        model = nn.Linear(5, 4)
        model.requires_grad_(False)
        debug_api.attach(model)
        model(torch.randn(2, 5))
        debug_api.step()
    assert values.names == {f"model_{name}_min" for name in ("activation", "weight", "output")}


def test_a_tied_weight_appears_under_the_first_name(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, index):
            return self.head(self.embedding(index))

    with session(statistics_of(["max"], ["weight", "output"]), tmp_path) as values:
        model = Tied()
        debug_api.attach(model)
        model(torch.tensor([1, 2])).sum().backward()
        debug_api.step()
    assert values.names == {
        "model.embedding_weight_max",
        "model.embedding_output_max",
        "model.head_output_max",
    }


def test_names_of_layers_and_what_no_layer_is_called(tmp_path):
    config = section(
        {"LogTensorStats": {"stats": ["min"], "tensors": ["weight"]}},
        exact_layer_names=["gpt.0", "mine", "gone"],
    )
    with session(config, tmp_path) as values:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
        model[2].name = "mine"
        debug_api.attach(model, name="gpt")
        model(torch.zeros(1, 2))
        debug_api.step()
    assert values.names == {"gpt.0_weight_min", "mine_weight_min"}
    warnings = [line for line in main_log(tmp_path) if line.startswith("WARNING")]
    assert warnings == ["WARNING - all.layers.exact_layer_names: no layer is called gone."]


def test_errors_of_attach_leave_nothing_behind(tmp_path):
    with pytest.raises(RuntimeError, match="initialize"):
        debug_api.attach(nn.Linear(2, 2))
    config = section({"LogTensorStats": {"stats": ["min"], "tensors": ["weight"]}})
    config["other"] = dict(config["all"])
    model = nn.Sequential(nn.Linear(2, 2))
    with session(config, tmp_path / "1"):
        with pytest.raises(ValueError, match="all.*other"):
            debug_api.attach(model)
        assert type(model[0]) is nn.Linear
    with session("", tmp_path / "2"):
        with pytest.raises(TypeError):
            debug_api.attach([model])
        debug_api.attach(model)
        with pytest.raises(ValueError, match="attached already"):
            debug_api.attach(nn.Sequential(nn.Linear(2, 2), model))
    assert type(model[0]) is nn.Linear


def test_detaching_ends_it_and_another_attach_begins_anew(tmp_path):
    with session(statistics_of(["min"], ["activation"]), tmp_path) as values:
        model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.MultiheadAttention(2, 1))
        kinds = [type(one) for one in model.modules()]
        handle = debug_api.attach(model)
        assert [type(one) for one in model.modules()] != kinds
        handle.detach()
        handle.detach()
        assert [type(one) for one in model.modules()] == kinds
        assert not any(key.startswith("_inspect") for one in model for key in vars(one))
        model[0](torch.zeros(1, 2))
        debug_api.step()
        assert not values.found
        debug_api.attach(model)
        model[0](torch.zeros(1, 2))
        debug_api.step()
        assert values.iterations("model.0_activation_min") == [1]
    assert [type(one) for one in model.modules()] == kinds


# Detached, attached again, and several models


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(4, 4, 3), nn.LayerNorm(6), nn.Linear(6, 6))


def test_a_module_that_was_parametrized_while_attached_is_attached_again(tmp_path):
    model, x = layers(), torch.randn(2, 4, 8)
    with session(statistics_of(["l1_norm"], ["activation", "weight"]), tmp_path) as values:
        handle = debug_api.attach(model)
        for index in (0, 2):
            parametrizations.weight_norm(model[index])
        outputs = []
        for _ in range(3):
            outputs.append(model(x))
            debug_api.step()
            handle.detach()
            outputs.append(model(x))
            handle = debug_api.attach(model)
        handle.detach()
        for index in (0, 2):
            parametrize.remove_parametrizations(model[index], "weight")
        debug_api.attach(model)
        outputs.append(model(x))
        debug_api.step()
        for output in outputs:
            torch.testing.assert_close(output, outputs[0])
        for iteration in range(4):
            for index in range(3):
                # Once, by whomever the class was made.
                found = values[f"model.{index}_weight_l1_norm", iteration]
                assert found == pytest.approx(model[index].weight.abs().sum().item(), rel=1e-6)
            found = values["model.0_activation_l1_norm", iteration]
            assert found == pytest.approx(x.abs().sum().item(), rel=1e-6)


def test_two_models_with_the_same_names(tmp_path):
    with session(statistics_of(["max"], ["output"]), tmp_path) as values:
        models = [nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)) for _ in range(3)]
        for number, model in enumerate(models):
            for one in model.parameters():
                nn.init.constant_(one, number)
            debug_api.attach(model)
        handle = debug_api.attach(nn.Linear(1, 1), name="discriminator")
        handle.detach()
        debug_api.attach(nn.Linear(1, 1), name="discriminator")
        for model in models:
            model(torch.ones(1))
        debug_api.step()
        assert {name: values[name, 0] for name in values.names} == {
            "model.0_output_max": 0,
            "model.2_output_max": 0,
            "model.0#2_output_max": 2,
            "model.2#2_output_max": 3,
            "model.0#3_output_max": 4,
            "model.2#3_output_max": 10,
        }
    told = [line for line in main_log(tmp_path) if "another attached model" in line]
    assert len(told) == 2
    assert all("model.0 and model.2" in line for line in told)
    assert not any("discriminator#" in line for line in main_log(tmp_path))


def total(x):
    return pytest.approx(x.abs().sum().item(), rel=1e-6)


def test_what_was_seen_in_the_step_of_a_detach_is_logged_when_it_ends(tmp_path):
    x = torch.randn(3, 4)
    with session(statistics_of(["l1_norm"], ALL), tmp_path) as values:
        model = nn.Linear(4, 4)
        handle = debug_api.attach(model)
        model(x).sum().backward()
        handle.detach()
        model(x).sum().backward()
        assert not values.found
        debug_api.step()
        assert values["model_activation_l1_norm", 0] == total(x)
        assert len(values.found) == len(ALL) - 1
        debug_api.step()
        assert len(values.found) == len(ALL) - 1
        # Detached, and attached again in the same step: one tensor.
        for part in x:
            handle = debug_api.attach(model)
            model(part)
            handle.detach()
        debug_api.step()
        assert values["model_activation_l1_norm", 2] == total(x)


def test_what_was_seen_before_a_detach_is_logged_by_the_end_of_the_session(tmp_path):
    x = torch.randn(3, 4)
    with session(statistics_of(["l1_norm"], ["activation"], freq=2), tmp_path) as values:
        model = nn.Linear(4, 4)
        handle = debug_api.attach(model)
        model(x)
        debug_api.step()
        model(x)
        handle.detach()
        debug_api.step()
        handle = debug_api.attach(model)
        model(x)
        handle.detach()
    assert values["model_activation_l1_norm", 0] == total(x)
    assert values["model_activation_l1_norm", 2] == total(x)
    assert len(values.found) == 2


# What fails is told once, and the training goes on


def train(model, count=3):
    for _ in range(count):
        model.zero_grad(set_to_none=True)
        model(torch.ones(2, 3)).sum().backward()
        debug_api.step()
    return [parameter.grad for parameter in model.parameters()]


def errors_of(folder):
    return [line for line in main_log(folder) if line.startswith("ERROR")]


def test_a_statistic_that_fails(monkeypatch, tmp_path):
    real = observer.collect

    def failing(tensor, **keywords):
        if tensor.shape == (2, 3):
            raise RuntimeError("no such kernel")
        return real(tensor, **keywords)

    config = statistics_of(["min"], ["activation", "weight", "gradient"])
    with session(config, tmp_path) as values:
        model = nn.Linear(3, 4)
        debug_api.attach(model)
        monkeypatch.setattr(observer, "collect", failing)
        gradients = train(model)
        assert torch.equal(gradients[1], torch.full((4,), 2.0))
    assert values.names == {"model_weight_min", "model_gradient_min"}
    (told,) = errors_of(tmp_path)
    assert "model: the statistics of activation failed" in told
    assert "no such kernel" in told
