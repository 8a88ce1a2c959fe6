"""Would FP8 hurt? The same training again and again, each time with other GEMMs in FP8."""

from typing import Any

import torch
from small_transformer import SmallTransformer, batches, loss_of

import dftrace_ai.inspect as debug_api

STEPS = 25
OPERANDS = {
    "fprop": ("activation", "weight"),
    "dgrad": ("gradient", "weight"),
    "wgrad": ("gradient", "activation"),
}
HYBRID = {"activation": "FP8E4M3", "weight": "FP8E4M3", "gradient": "FP8E5M2"}


def rounded(gemms: tuple[str, ...], layers: tuple[str, ...]) -> dict[str, Any]:
    """A config that rounds the operands of some GEMMs of some layers to FP8."""
    items = [
        {
            "gemm": gemm,
            "tensors_struct": [
                {"tensor": tensor, "quant_format": HYBRID[tensor]} for tensor in OPERANDS[gemm]
            ],
        }
        for gemm in gemms
    ]
    return {
        "would_fp8_hurt": {
            "enabled": True,
            "layers": {"layer_types": list(layers)},
            "transformer_engine": {"FakeQuant": {"enabled": True, "gemms_struct": items}},
        }
    }


def final_loss(config: dict[str, Any] | str) -> float:
    """Mean loss of the last ten steps of a training under a config."""
    torch.manual_seed(0)
    model = SmallTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    debug_api.initialize(config, log_dir="out")
    debug_api.attach(model)
    losses = []
    for text, following in batches(STEPS):
        loss = loss_of(model, text, following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        debug_api.step()
        losses.append(loss.item())
    debug_api.end_debug()
    return sum(losses[-10:]) / 10


torch.set_num_threads(1)  # the model is too small for more
plain = final_loss({})
print(f"{'everything in high precision':37} loss {plain:.4f}")
for layers in (("fc1",), ("head",), ("attention", "fc", "head")):
    for gemms in (("fprop",), ("dgrad",), ("wgrad",), ("fprop", "dgrad", "wgrad")):
        loss = final_loss(rounded(gemms, layers))
        print(f"{'+'.join(layers):18} {'+'.join(gemms):18} loss {loss:.4f}  {loss - plain:+.4f}")
