"""The same training in each framework, as a program: without us, traced, by a callback, resumed, logged."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import pickle
import runpy
import sys
from pathlib import Path

import accelerate as hf_accelerate
import keras as keras_3
import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.integrations import keras, lightning, transformers
from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.adapters.accelerate import accelerate_tracker, register_tracker
from dftrace_ai.loggers.adapters.keras import keras_callback
from dftrace_ai.loggers.adapters.lightning import lightning_logger
from dftrace_ai.loggers.adapters.transformers import trainer_callback

OUT = Path(sys.argv[1])
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
DIGITS = ("accelerate", "transformers", "lightning", "keras")
TRAINED, JUDGED, BATCH, MARKED, ACCUMULATED, EPOCHS = 48, 8, 4, 21, 4, 2
BATCHES = TRAINED // BATCH

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
keras_3.utils.set_random_seed(0)


class Items(Dataset):
    """Numbers made of their index; one says when it is made."""

    def __init__(self, count: int, *, by_name: bool = False) -> None:
        self.count, self.by_name = count, by_name

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        if index == MARKED:
            ai.instant("the marked item")
        x = torch.linspace(0, 1, 16) * (index % 7)
        y = torch.tensor(index % 4)
        return {"x": x, "labels": y} if self.by_name else (x, y)


def loaders() -> tuple[DataLoader, DataLoader]:
    return DataLoader(Items(TRAINED), batch_size=BATCH), DataLoader(Items(JUDGED), batch_size=BATCH)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(8, 4))


def learned(model, losses) -> list:
    return [[float(x) for x in losses], [p.tolist() for p in model.state_dict().values()]]


def judge(model, batches) -> None:
    model.eval()
    with torch.no_grad():
        for x, _ in batches:
            model(x)


def plain(folder, extra):
    model, losses = net(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train, test = loaders()
    for _ in range(EPOCHS):
        model.train()
        for number, (x, y) in enumerate(train, 1):
            loss = F.cross_entropy(model(x), y)
            losses.append(loss.item())
            (loss / ACCUMULATED).backward()
            if number % ACCUMULATED == 0:
                optimizer.step()
                optimizer.zero_grad()
        judge(model, test)
        torch.save(model.state_dict(), folder / "model.pt")
    return learned(model, losses)


def accelerate(folder, extra):
    accelerator = hf_accelerate.Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    losses, inner = [], net()
    model, optimizer, train, test = accelerator.prepare(
        inner, torch.optim.SGD(inner.parameters(), 0.1), *loaders()
    )
    for _ in range(EPOCHS):
        model.train()
        for x, y in train:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                losses.append(loss.item())
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        judge(model, test)
        accelerator.save_state(folder / "state")
    accelerator.load_state(folder / "state")
    return learned(inner, losses)


class Model(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.net, self.losses = net(), []
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, x, labels=None):
        logits = self.net(x)
        loss = F.cross_entropy(logits, labels)
        if self.training:
            self.losses.append(loss.item())
        return {"loss": loss, "logits": logits}


class InOrder(Trainer):
    def _get_train_sampler(self, *args):
        return SequentialSampler(self.train_dataset)


def trainer(folder, extra, *, resumed=None, callbacks=()):
    model = Model(PretrainedConfig())
    arguments = TrainingArguments(
        str(folder),
        **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), BATCH),
        **dict.fromkeys(("save_strategy", "eval_strategy"), "epoch"),
        gradient_accumulation_steps=ACCUMULATED,
        num_train_epochs=EPOCHS,
        report_to=[],
        use_cpu=True,
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    data = (Items(count, by_name=True) for count in (TRAINED, JUDGED))
    callbacks = [*callbacks, *([transformers.trace_callback()] if extra else [])]
    made = InOrder(model, arguments, None, *data, callbacks=callbacks)
    with contextlib.redirect_stdout(sys.stderr):
        made.train(resume_from_checkpoint=resumed)
    return learned(model.net, model.losses)


class Module(pl.LightningModule):
    def __init__(self, *, logged=""):
        super().__init__()
        self.net, self.losses, self.logged = net(), [], logged
        if logged:
            self.save_hyperparameters({"lr": 0.01})

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        if self.logged:
            self.log("loss", loss)
        return loss

    def on_train_end(self):
        if self.logged:
            tell(self.logged, self.losses)

    def test_step(self, batch, index):
        self.log("test_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def validation_step(self, batch, index):
        self.net(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Begun(DataLoader):
    """A loader that says when a pass over it begins."""

    def __iter__(self):
        ai.instant("a pass begins")
        return super().__iter__()


def lightning_2(folder, extra, *, resumed=None, callbacks=()):
    module = Module()
    saves = pl.callbacks.ModelCheckpoint(
        folder, "{epoch}", save_top_k=-1, enable_version_counter=False
    )
    made = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        accumulate_grad_batches=ACCUMULATED,
        callbacks=[saves, *callbacks, *([lightning.trace_callback()] if extra else [])],
        profiler=lightning.trace_profiler() if extra else None,
        **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False),
    )
    train, test = loaders()
    judged = Begun(test.dataset, batch_size=BATCH)
    made.fit(module, train, judged, ckpt_path=resumed)
    return learned(module.net, module.losses)


def keras_on_torch(folder, extra, *, callbacks=()):
    keras_3.utils.set_random_seed(0)
    layers = [keras_3.layers.Dense(8, activation="relu"), keras_3.layers.Dense(4)]
    model = keras_3.Sequential([keras_3.layers.Input((16,)), *layers])
    loss = keras_3.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras_3.optimizers.SGD(0.1), loss=loss)
    train, test = loaders()
    history = model.fit(
        train,
        epochs=EPOCHS,
        validation_data=test,
        verbose=0,
        callbacks=[
            keras_3.callbacks.ModelCheckpoint(folder / "m.weights.h5", save_weights_only=True),
            *callbacks,
            *([keras.trace_callback()] if extra else []),
        ],
    )
    model.load_weights(folder / "m.weights.h5")
    model.predict(test, verbose=0)
    return [history.history["loss"], [one.tolist() for one in model.get_weights()]]


TRAININGS = {
    "plain": plain,
    "accelerate": accelerate,
    "trainer": trainer,
    "lightning": lightning_2,
    "keras": keras_on_torch,
}


LOADING = (
    (PreTrainedModel, "from_pretrained"),
    *(
        (home, name)
        for home in (keras_3.saving, keras_3.models)
        for name in ("save_model", "load_model")
    ),
)


class OwnLoader:
    """No `DataLoader`: its fetches are not seen."""

    def __iter__(self):
        return iter(list(loaders()[0]))


def without_evaluation(name: str, folder: Path) -> None:
    """Two epochs with nothing between them, and data that say nothing of epochs."""
    if name == "lightning":
        quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        made = pl.Trainer(max_epochs=EPOCHS, accelerator="cpu", **dict.fromkeys(quiet, False))
        made.fit(Module(), OwnLoader())
    elif name == "trainer":
        arguments = TrainingArguments(
            str(folder),
            per_device_train_batch_size=BATCH,
            num_train_epochs=EPOCHS,
            **dict.fromkeys(("save_strategy", "eval_strategy", "logging_strategy"), "no"),
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        data = Items(TRAINED, by_name=True)
        with contextlib.redirect_stdout(sys.stderr):
            InOrder(Model(PretrainedConfig()), arguments, None, data).train()
    else:
        model = keras_3.Sequential([keras_3.layers.Input((16,)), keras_3.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        batches = ((torch.ones(4, 16), torch.ones(4, 1)) for _ in itertools.count())
        model.fit(batches, epochs=EPOCHS, steps_per_epoch=12, verbose=0)


def told_by_the_callback(folder: Path, saved: str) -> None:
    """Goes on where nothing is held on to in the framework, as in a version that nobody knows."""
    callback = transformers.trace_callback(parts="-transformers")
    trainer(folder, False, resumed=saved, callbacks=[callback])


def saved_and_loaded(folder: Path, _) -> None:
    Model(PretrainedConfig()).save_pretrained(folder / "model")
    with contextlib.redirect_stdout(sys.stderr):
        Model.from_pretrained(folder / "model")
    model = keras_3.Sequential([keras_3.layers.Input((16,)), keras_3.layers.Dense(1)])
    keras_3.saving.save_model(model, folder / "model.keras")
    keras_3.models.load_model(filepath=folder / "model.keras")


RESUMED = {"trainer": "checkpoint-3", "lightning": "epoch=0.ckpt"}


def traced(name: str, train, *, by_callback: bool = False):
    folder = OUT / name
    folder.mkdir()
    with dftrace_ai.tracing(log_file=folder / "trace", compression="none"):
        if not by_callback:
            dftrace_ai.auto()
        try:
            return train(folder, by_callback)
        finally:
            dftrace_ai.auto.remove()


def on_the_page(name: str) -> None:
    """The program that a page of the guide shows, in a folder of its own."""
    folder, before = OUT / f"digits-{name}", Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    with (
        dftrace_ai.tracing(log_file="out/trace"),
        contextlib.redirect_stdout(sys.stderr),
    ):
        dftrace_ai.auto()
        try:
            runpy.run_path(str(EXAMPLES / f"digits_{name}.py"), run_name="__main__")
        finally:
            dftrace_ai.auto.remove()
            os.chdir(before)


# What a trainer logs by an adapter of our loggers: each tells the losses by step that it had itself.


def tell(run: str, losses) -> None:
    by_step = losses if isinstance(losses, dict) else dict(enumerate(losses))
    (OUT / f"{run}-losses").write_text(json.dumps(by_step))


def entry(run: str):
    quiet = {"status_line": False, "system_metrics_s": None, "windows": [1]}
    return {"local": {"config": {"log_dir": str(OUT / "logged"), "run_name": run, **quiet}}}


def lightning_logged(run: str, **how):
    logger, module = lightning_logger(make_loggers(entry(run))), Module(logged=run)
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary"), False)
    quiet |= {"accelerator": "cpu", "default_root_dir": OUT / run}
    made = pl.Trainer(logger=logger, log_every_n_steps=1, **quiet, **how)
    train, test = loaders()
    made.fit(module, train)
    if "strategy" in how:
        # Where a trainer asks for them in a process that it has started, files have the same place.
        saved = os.path.dirname(made.checkpoint_callback.best_model_path)
        assert saved == f"{logger.log_dir}/checkpoints"
        again = pickle.loads(pickle.dumps(logger))
        places = [(one.name, one.version, one.log_dir) for one in (again, logger)]
        assert places[0] == places[1]
    else:
        made.test(made.lightning_module, test, verbose=False)
    assert logger.version == run
    assert logger.log_dir.startswith(str(OUT / "logged"))


def accelerate_logged(run: str):
    tracker = accelerate_tracker(make_loggers(entry(run)))
    accelerator = hf_accelerate.Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("project", config={"lr": 0.01})
    losses = []
    for step in range(BATCHES):
        losses.append(1 / (step + 1))
        accelerator.log({"loss": losses[-1]}, step=step)
    accelerator.end_training()
    pickle.loads(pickle.dumps(accelerate_tracker([]))).name
    if hasattr(hf_accelerate.tracking, "register_tracker_class"):
        registered = hf_accelerate.Accelerator(cpu=True, log_with=register_tracker())
        config = {"dftrace_ai": {"config": entry("registered")}}
        registered.init_trackers("project", init_kwargs=config)
        for _ in range(3):
            registered.log({"loss": 1.0, "eval": {"acc": 0.5}})
        registered.end_training()
        assert os.listdir(OUT / "logged" / "default" / "registered")
    tell(run, losses)


def transformers_logged(run: str):
    arguments = TrainingArguments(
        str(OUT / run),
        max_steps=6,
        logging_steps=1,
        learning_rate=0.01,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    callback = trainer_callback(make_loggers(entry(run)))
    data = Items(TRAINED, by_name=True)
    made = InOrder(Model(PretrainedConfig()), arguments, None, data, callbacks=[callback])
    with contextlib.redirect_stdout(sys.stderr):
        made.train()
    pickle.loads(pickle.dumps(made.callback_handler.callbacks[-1]))
    lines = [line for line in made.state.log_history if "loss" in line]
    tell(run, {line["step"]: line["loss"] for line in lines})


class Kept(keras_3.callbacks.Callback):
    """Keeps what Keras says of each batch."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def keras_logged(run: str):
    model = keras_3.Sequential([keras_3.layers.Input((16,)), keras_3.layers.Dense(1)])
    model.compile("sgd", "mse")
    ours, kept = keras_callback(make_loggers(entry(run))), Kept()
    pickle.loads(pickle.dumps(ours))
    train, _ = loaders()
    told = model.fit(train, epochs=EPOCHS, verbose=0, callbacks=[ours, kept])
    tell("epochs", told.history["loss"])
    tell(run, kept.losses)


def raising(names: tuple[str, ...], base: type):
    def fail(*args, **kwargs):
        raise LookupError("of the user")

    return type("Raises", (base,), dict.fromkeys(names, fail))()


def main() -> None:
    said = {}
    lightning_logged("forked", max_epochs=1, strategy="ddp_fork", devices=1)
    lightning_logged("lightning", max_epochs=2, enable_checkpointing=False)
    accelerate_logged("accelerate")
    transformers_logged("transformers")
    keras_logged("keras")
    for name, train in TRAININGS.items():
        (OUT / f"{name}-without").mkdir()
        expected = train(OUT / f"{name}-without", False)
        found = {"auto": traced(name, train)}
        if name not in {"plain", "accelerate"}:
            found["callback"] = traced(f"{name}-callback", train, by_callback=True)
        said[name] = {way: one == expected for way, one in found.items()}
        if name in RESUMED:
            saved = str(OUT / f"{name}-without" / RESUMED[name])
            (OUT / f"{name}-resumed-without").mkdir()
            expected = train(OUT / f"{name}-resumed-without", False, resumed=saved)
            one = traced(f"{name}-resumed", lambda *a, t=train, s=saved: t(*a, resumed=s))
            said[name]["resumed"] = one == expected
    saved = str(OUT / "trainer-without" / RESUMED["trainer"])
    traced("trainer-alone", lambda folder, _: told_by_the_callback(folder, saved), by_callback=True)
    for name, hook, base in (
        ("trainer", "on_step_end", TrainerCallback),
        ("lightning", "on_train_batch_end", pl.Callback),
        ("keras", "on_train_batch_end", keras_3.callbacks.Callback),
    ):
        traced(f"{name}-bare", lambda folder, _, n=name: without_evaluation(n, folder))
        train, user = TRAININGS[name], raising((hook,), base)
        try:
            traced(f"{name}-raises", lambda *a, t=train, u=user: t(*a, callbacks=[u]))
        except LookupError as error:
            said[name]["raises"] = str(error) == "of the user" and error.__cause__ is None
    before = [vars(owner)[name] for owner, name in LOADING]
    traced("models", saved_and_loaded)
    after = [vars(owner)[name] for owner, name in LOADING]
    said["models"] = {"as it was": all(one is other for one, other in zip(before, after))}
    for name in DIGITS:
        on_the_page(name)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
