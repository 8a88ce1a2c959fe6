import sys

import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from dftrace_ai import ai, tracing
from dftrace_ai.loggers import make_loggers

out = sys.argv[1]
hparams = {"lr": 0.1, "epochs": 3, "model": {"width": 32, "act": torch.nn.ReLU}}
entry = {
    "config": {
        "loggers": ["metric", "hist", "hparams", "image", "mesh"],
        "tracked_variables": {
            "metric": ["loss", "accuracy"],
            "hist": ["model"],
            "image": ["digits"],
            "mesh": ["landscape"],
        },
        "log_dir": out,
        "project": "digits",
        "run_name": "small",
        "windows": [10],
    }
}

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Flatten(),
    torch.nn.Linear(64, 32),
    hparams["model"]["act"](),
    torch.nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), hparams["lr"])

with (
    tracing(log_file=f"{out}/trace"),
    make_loggers({"local": entry, "tensorboard": entry, "trace": entry}) as loggers,
):
    for epoch in ai.pipeline.epoch.iter(range(hparams["epochs"])):
        for batch in torch.randperm(len(images)).split(256):
            with ai.compute.forward:
                scores = model(images[batch])
                loss = functional.cross_entropy(scores, labels[batch])
            optimizer.zero_grad()
            with ai.compute.backward:
                loss.backward()
            optimizer.step()
            accuracy = (scores.argmax(1) == labels[batch]).float().mean()
            loggers.log_iter({"loss": loss, "accuracy": accuracy, "hparams": hparams})
        # What is logged once in an epoch is an iteration's data, too.
        grid = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
        height = images[labels == epoch].mean(0).reshape(-1, 1) * 4
        corner = torch.arange(56).reshape(7, 8)[:, :7].reshape(-1, 1)
        faces = torch.cat([corner + torch.tensor(t) for t in ([0, 1, 9], [0, 9, 8])])
        loggers.log_iter(
            {
                "model": model,
                "digits": images[:16, None],
                "landscape": {"vertices": torch.cat([grid, height], 1), "faces": faces},
            }
        )
        loggers.log_epoch()
    loggers.alert("training is done", f"accuracy {accuracy:.2f}")
