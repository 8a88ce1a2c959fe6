"""Modules that others have changed before or after they were attached, and several models."""

from __future__ import annotations

import pytest
import torch
from attached_models import ALL, main_log, session, statistics_of
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import dftrace_ai.inspect as debug_api


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


@pytest.mark.parametrize(
    "config",
    [
        statistics_of(["max"], ALL, freq=100, start_step=1),
        statistics_of(["max"], ["output"]),
        statistics_of(["max"], ALL),
    ],
    ids=["idle", "output", "everything"],
)
def test_a_weight_that_changes_when_it_is_asked_for(config, tmp_path):
    """Each access of a weight under spectral_norm is a step of its power iteration."""

    def trained(attached):
        torch.manual_seed(0)
        model = nn.Sequential(
            parametrizations.spectral_norm(nn.Conv1d(4, 4, 3)),
            parametrizations.spectral_norm(nn.Linear(6, 6)),
        )
        with session(config if attached else "", tmp_path / str(attached)):
            if attached:
                debug_api.attach(model)
            optimizer = torch.optim.SGD(model.parameters(), 1.0)
            generator = torch.Generator().manual_seed(1)
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.randn(2, 4, 8, generator=generator)).square().sum().backward()
                optimizer.step()
                debug_api.step()
        return model.state_dict()

    plain, attached = trained(attached=False), trained(attached=True)
    for name, one in plain.items():
        assert torch.equal(attached[name], one), name


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
