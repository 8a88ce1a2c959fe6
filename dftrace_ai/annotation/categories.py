"""The tree's categories and names. Generated: edit schemas/categories.yaml instead."""

from __future__ import annotations

from dftrace_ai.annotation.node import ProfilerNode


class Io(ProfilerNode):
    """Operations on files and streams."""

    open: ProfilerNode
    """Opening a file, or loading a data object."""
    read: ProfilerNode
    """Reading from an open one."""
    write: ProfilerNode
    """Writing to an open one."""
    close: ProfilerNode
    """Closing or deleting one."""

    def _grow(self) -> None:
        self.open = self._child(f"{self.name}.open")
        self.read = self._child(f"{self.name}.read")
        self.write = self._child(f"{self.name}.write")
        self.close = self._child(f"{self.name}.close")


class Compute(ProfilerNode):
    """Work on the model."""

    forward: ProfilerNode
    """Forward pass of the network."""
    backward: ProfilerNode
    """Backward pass, computation of the gradients."""
    step: ProfilerNode
    """Optimizer step, update of the parameters."""
    compile: ProfilerNode
    """Compilation of the model's code. An addition to dftracer's names."""

    def _grow(self) -> None:
        self.forward = self._child("forward")
        self.backward = self._child("backward")
        self.step = self._child("step")
        self.compile = self._child("compile")


class Data(ProfilerNode):
    """Work on the data set."""

    preprocess: ProfilerNode
    """Preprocessing of the data set."""
    item: ProfilerNode
    """Loading or transforming one item."""
    io: Io
    """Operations on files and streams."""

    def _grow(self) -> None:
        self.preprocess = self._child("preprocess")
        self.item = self._child("item")
        self.io = self._child(f"{self.name}.io", Io)


class DataLoader(ProfilerNode):
    """Work of the data loader."""

    fetch: ProfilerNode
    """Fetching a batch from the loader."""

    def _grow(self) -> None:
        self.fetch = self._child("fetch")


class Comm(ProfilerNode):
    """Communication between ranks."""

    send: ProfilerNode
    """Point-to-point send."""
    receive: ProfilerNode
    """Point-to-point receive."""
    barrier: ProfilerNode
    """Synchronization barrier."""
    bcast: ProfilerNode
    """Broadcast, one to many."""
    reduce: ProfilerNode
    """Reduce, many to one."""
    all_reduce: ProfilerNode
    """All-reduce, many to many."""
    gather: ProfilerNode
    """Gather, many to one."""
    all_gather: ProfilerNode
    """All-gather, many to many."""
    scatter: ProfilerNode
    """Scatter, one to many."""
    reduce_scatter: ProfilerNode
    """Reduce-scatter, many to many."""
    all_to_all: ProfilerNode
    """All-to-all, many to many."""
    init_process_group: ProfilerNode
    """Joining the group of all ranks, until all have come. An addition to dftracer's names."""

    def _grow(self) -> None:
        self.send = self._child("send")
        self.receive = self._child("receive")
        self.barrier = self._child("barrier")
        self.bcast = self._child("bcast")
        self.reduce = self._child("reduce")
        self.all_reduce = self._child("all_reduce")
        self.gather = self._child("gather")
        self.all_gather = self._child("all_gather")
        self.scatter = self._child("scatter")
        self.reduce_scatter = self._child("reduce_scatter")
        self.all_to_all = self._child("all_to_all")
        self.init_process_group = self._child("init_process_group")


class Device(ProfilerNode):
    """Work of an accelerator's memory."""

    transfer: ProfilerNode
    """Transfer between host and device memory."""

    def _grow(self) -> None:
        self.transfer = self._child("transfer")


class Checkpoint(ProfilerNode):
    """Saving and restoring of the model."""

    capture: ProfilerNode
    """Writing a checkpoint of the model."""
    restart: ProfilerNode
    """Reading a checkpoint of the model."""
    io: Io
    """Operations on files and streams."""

    def _grow(self) -> None:
        self.capture = self._child("capture")
        self.restart = self._child("restart")
        self.io = self._child(f"{self.name}.io", Io)


class Pipeline(ProfilerNode):
    """Phases of the whole job."""

    epoch: ProfilerNode
    """An entire epoch of training or evaluation."""
    train: ProfilerNode
    """The training phase."""
    evaluate: ProfilerNode
    """The evaluation or validation phase."""
    test: ProfilerNode
    """The testing or inference phase."""
    step: ProfilerNode
    """A step of the training, all of it. An addition to dftracer's names."""

    def _grow(self) -> None:
        self.epoch = self._child("epoch")
        self.train = self._child("train")
        self.evaluate = self._child("evaluate")
        self.test = self._child("test")
        self.step = self._child("step")


class Host(ProfilerNode):
    """What Python does by itself."""

    gc: ProfilerNode
    """Collection of garbage, which holds up all threads. An addition to dftracer's names."""

    def _grow(self) -> None:
        self.gc = self._child("gc")


class Other(ProfilerNode):
    """What fits no other category."""

    log: ProfilerNode
    """Logging, or a call of an external service."""
    io: Io
    """Operations on files and streams."""

    def _grow(self) -> None:
        self.log = self._child(f"{self.name}.log")
        self.io = self._child(f"{self.name}.io", Io)


class Categories(ProfilerNode):
    """The root of the tree."""

    compute: Compute
    """Work on the model."""
    data: Data
    """Work on the data set."""
    dataloader: DataLoader
    """Work of the data loader."""
    comm: Comm
    """Communication between ranks."""
    device: Device
    """Work of an accelerator's memory."""
    checkpoint: Checkpoint
    """Saving and restoring of the model."""
    pipeline: Pipeline
    """Phases of the whole job."""
    host: Host
    """What Python does by itself."""
    other: Other
    """What fits no other category."""

    def _grow(self) -> None:
        self.compute = self._branch("compute", Compute)
        self.data = self._branch("data", Data)
        self.dataloader = self._branch("dataloader", DataLoader)
        self.comm = self._branch("comm", Comm)
        self.device = self._branch("device", Device)
        self.checkpoint = self._branch("checkpoint", Checkpoint)
        self.pipeline = self._branch("pipeline", Pipeline)
        self.host = self._branch("host", Host)
        self.other = self._branch("other", Other)


ROOT = ("ai_root", "ai_root")
CATEGORIES = (
    "compute",
    "data",
    "dataloader",
    "comm",
    "device",
    "checkpoint",
    "pipeline",
    "host",
    "other",
)
