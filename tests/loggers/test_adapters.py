"""Loggers inside the frameworks' own trainers: what these log is found in the embedded tracker."""

from __future__ import annotations

import json

import pytest
from loggers.local_lines import Kept

PREAMBLE = """
import os, sys, torch
from dftrace_ai.loggers import make_loggers
out = sys.argv[1]
entry = {"config": {"log_dir": out, "run_name": "run", "status_line": False, "system_metrics_s": None,
                    "windows": [1]}}
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
"""

LIGHTNING = """
import pickle, warnings
warnings.simplefilter("ignore")
import lightning.pytorch as pl
from dftrace_ai.loggers.adapters.lightning import lightning_logger

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"lr": 0.01})
        self.layer = torch.nn.Linear(4, 1)
    def step(self, batch):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
    def training_step(self, batch, index):
        loss = self.step(batch)
        self.log("loss", loss)
        print("loss", loss.item(), self.global_step, flush=True)
        return loss
    def test_step(self, batch, index):
        self.log("test_loss", self.step(batch))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
"""

PROGRAMS = {
    "lightning": LIGHTNING
    + """
logger = lightning_logger(make_loggers({"local": entry}))
trainer = pl.Trainer(max_epochs=2, logger=logger, log_every_n_steps=1, enable_progress_bar=False,
                     enable_checkpointing=False, enable_model_summary=False, default_root_dir=out)
loader = torch.utils.data.DataLoader(data, 8)
trainer.fit(Module(), loader)
trainer.test(trainer.lightning_module, loader, verbose=False)
assert logger.version == "run" and logger.log_dir.startswith(out)
""",
    "lightning that forks": LIGHTNING
    + """
logger = lightning_logger(make_loggers({"local": entry}))
trainer = pl.Trainer(max_epochs=1, logger=logger, log_every_n_steps=1, enable_progress_bar=False,
                     accelerator="cpu", strategy="ddp_fork", devices=1,
                     enable_model_summary=False, default_root_dir=out)
trainer.fit(Module(), torch.utils.data.DataLoader(data, 8))
# Where a trainer asks for them in a process that it has started, files have the same place.
assert os.path.dirname(trainer.checkpoint_callback.best_model_path) == f"{logger.log_dir}/checkpoints"
again = pickle.loads(pickle.dumps(logger))
assert (again.name, again.version, again.log_dir) == (logger.name, logger.version, logger.log_dir)
""",
    "accelerate": """
from accelerate import Accelerator
from dftrace_ai.loggers.adapters.accelerate import accelerate_tracker

accelerator = Accelerator(cpu=True, log_with=accelerate_tracker(make_loggers({"local": entry})))
accelerator.init_trackers("project", config={"lr": 0.01})
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), 0.01)
layer, optimizer, loader = accelerator.prepare(layer, optimizer, torch.utils.data.DataLoader(data, 8))
for step, (x, y) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(layer(x), y)
    accelerator.backward(loss)
    optimizer.step()
    accelerator.log({"loss": loss.item()}, step=step)
    print("loss", loss.item(), step)
accelerator.end_training()

import pickle
from dftrace_ai.loggers.adapters.accelerate import register_tracker
pickle.loads(pickle.dumps(accelerate_tracker([]))).name
import accelerate.tracking
if hasattr(accelerate.tracking, "register_tracker_class"):
    registered = Accelerator(cpu=True, log_with=register_tracker())
    of_name = {"local": {"config": entry["config"] | {"run_name": "registered"}}}
    registered.init_trackers("project", init_kwargs={"dftrace_ai": {"config": of_name}})
    for step in range(3):
        registered.log({"loss": 1.0, "eval": {"acc": 0.5}})
    registered.end_training()
    assert os.listdir(f"{out}/default/registered")
""",
    "transformers": """
import warnings
warnings.simplefilter("ignore")
from transformers import Trainer, TrainingArguments
from dftrace_ai.loggers.adapters.transformers import trainer_callback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}

arguments = TrainingArguments(out, max_steps=6, logging_steps=1, report_to=[], use_cpu=True,
                              save_strategy="no", disable_tqdm=True, learning_rate=0.01,
                              per_device_train_batch_size=4)
rows = [{"x": x, "labels": y} for x, y in data]
trainer = Trainer(Model(), arguments, train_dataset=rows,
                  callbacks=[trainer_callback(make_loggers({"local": entry}))])
trainer.train()
import pickle
pickle.loads(pickle.dumps(trainer.callback_handler.callbacks[-1]))
for line in trainer.state.log_history:
    if "loss" in line:
        print("loss", line["loss"], line["step"])
""",
    "keras": """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
from dftrace_ai.loggers.adapters.keras import keras_callback

class Told(keras.callbacks.Callback):
    step = 0
    def on_train_batch_end(self, batch, logs=None):
        print("loss", float(logs["loss"]), self.step)
        Told.step += 1

model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = (part.numpy() for part in data.tensors)
callbacks = [keras_callback(make_loggers({"local": entry})), Told()]
import pickle
pickle.loads(pickle.dumps(callbacks[0]))
told = model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
for epoch, loss in enumerate(told.history["loss"]):
    print("epoch", loss, epoch)
""",
}


@pytest.mark.parametrize("framework", PROGRAMS)
def test_what_a_trainer_logs_is_found(framework, tmp_path, run_script):
    done = run_script(PREAMBLE + PROGRAMS[framework], args=[str(tmp_path / "runs")])
    kept = Kept(tmp_path / "runs")
    told = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("loss ")]
    wanted = {int(step): pytest.approx(float(loss)) for loss, step in told}
    assert wanted
    assert dict(kept.metric("loss")) == wanted
    assert kept.status == "finished"
    params = kept.of("p")[0]["v"]
    assert "0.01" in json.dumps(params) or framework == "keras"
    if framework == "lightning that forks":
        assert "written by another run" not in done.stderr
    if framework == "accelerate" and (kept.folder.parent / "registered").exists():
        counted = Kept(tmp_path / "runs", "registered")
        assert counted.metric("loss") == [(0, 1.0), (1, 1.0), (2, 1.0)]
        assert counted.metric("eval/acc") == [(0, 0.5), (1, 0.5), (2, 0.5)]
    if framework == "lightning":
        assert len(kept.metric("test_loss")) == 1
    if framework == "keras":
        told = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("epoch ")]
        of_epochs = {int(epoch): float(loss) for loss, epoch in told}
        assert len(of_epochs) == 2
        for figure in ("mean", "last", "min", "max", "mean_1"):
            assert dict(kept.metric(f"epoch/loss/{figure}")) == of_epochs
