"""Configs of tensor inspection for tests: small ones, and one of each form."""

from __future__ import annotations

from typing import Any

import yaml

from dftrace_ai.inspect.config import InspectConfig, Section, load

# One for each form that existing configs have.
EXAMPLES = {
    "two sections": """
fprop_in_high_precision:
  enabled: True
  layers:
    layer_types: [fc1, fc2]
  transformer_engine:
    DisableFP8GEMM:
      enabled: True
      gemms: [fprop]

activations:
  enabled: True
  layers:
    layer_types: [layernorm_linear]
  transformer_engine:
    LogTensorStats:
      enabled: True
      stats: [max, min, mean, std, l1_norm]
      tensors: [activation]
      freq: 1
      start_step: 2
      end_step: 5
""",
    "LogTensorStats": """
tensors_of_their_own:
  enabled: True
  layers:
    layer_name_regex_pattern: .*(fc1|self_attention).*
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors_struct:
        - tensor: activation
          stats: [mean]
          freq: 10
          start_step: 5
          end_step: 100
        - tensor: gradient
          stats: [mean, max, min]
          freq: 2
          start_end_list: [[0, 20], [80, 100]]
        - tensor: weight
          stats: [dynamic_range]
""",
    "LogFp8TensorStats": """
window_for_all_tensors:
  enabled: True
  layers:
    layer_types: [layernorm_linear]
  transformer_engine:
    LogFp8TensorStats:
        enabled: True
        tensors_struct:
        - tensor: activation
          stats: [underflows%, overflows%]
          freq: 1
        - tensor: gradient
          stats: [overflows%]
          freq: 5
        start_step: 0
        end_step: 80
""",
    "DisableFp8Gemm": """
backward_in_high_precision:
  enabled: True
  layers:
    layer_types: [fc1]
  transformer_engine:
    DisableFp8Gemm:
      enabled: True
      gemms: [dgrad, wgrad]
""",
    "DisableFp8Layer": """
layer_in_high_precision:
  enabled: True
  layers:
    layer_types: [fc1]
  transformer_engine:
    DisableFp8Layer:
      enabled: True
""",
    "PerTensorScaling": """
scaled_by_themselves:
  enabled: True
  layers:
    layer_types: [transformer_layer.self_attn.layernorm_q]
  transformer_engine:
      PerTensorScaling:
        enabled: True
        margin: 1
        gemms: [dgrad]
        tensors: [weight, activation]
""",
    "FakeQuant": """
rounded_to_fp8:
  enabled: True
  layers:
    layer_types: [transformer_layer.layernorm_mlp.fc1]
  transformer_engine:
      FakeQuant:
        enabled: True
        quant_format: FP8E5M2
        gemms_struct:
        - gemm: fprop
          tensors: [activation, weight]
        - gemm: dgrad
          tensors: [gradient]
""",
}

LOG = {"enabled": True, "tensors": ["activation"], "stats": ["mean"]}


def example(name: str) -> dict[str, Any]:
    return yaml.safe_load(EXAMPLES[name])


def one_section(layers: Any = None, base: Any = None, **features: Any) -> dict[str, Any]:
    """A config with one section, `one`, of these features; all layers unless said otherwise."""
    section: dict[str, Any] = {
        "enabled": True,
        "layers": {"layer_types": ["all"]} if layers is None else layers,
        "transformer_engine": {
            name: keys if not isinstance(keys, dict) else {"enabled": True, **keys}
            for name, keys in features.items()
        },
    }
    if base is not None:
        section["LogTensorStats"] = {"enabled": True, **base}
    return {"one": section}


def section_of(config: dict[str, Any]) -> Section:
    loaded: InspectConfig = load(config)
    (section,) = loaded.sections.values()
    return section
