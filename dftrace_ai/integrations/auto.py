"""`dftrace_ai.auto`: a framework traces itself, without a change of the program."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

from dftrace_ai import recorder
from dftrace_ai.config import values
from dftrace_ai.config.settings import Config
from dftrace_ai.errors import ConfigError
from dftrace_ai.integrations.options import AutoOptions, options_of
from dftrace_ai.integrations.registry import (
    GROUPS,
    install_framework_parts,
    install_other_parts,
    install_torch_parts,
    unknown_parts,
)
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.run.late_import import when_imported
from dftrace_ai.run.lifecycle import initialize
from dftrace_ai.run.run import current_run
from dftrace_ai.run.system_counters import sample_rank
from dftrace_ai.wording import described, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dftrace_ai.integrations.registry import Removal


class Auto:
    """Switches on what records a framework's work, and takes it out again: `dftrace_ai.auto`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._options: AutoOptions | None = None
        self._waiting: list[Callable[[], None]] = []
        self._removals: dict[str, Removal] = {}

    def __call__(
        self,
        model: Any = None,
        optimizer: Any = None,
        loader: Any = None,
        *,
        parts: str | Sequence[str] | None = None,
        steps: str | None = None,
        depth: int | None = None,
        modules: str | Sequence[str] | None = None,
        device: bool | None = None,
        nvtx: bool | None = None,
        itt: bool | None = None,
        io: bool | None = None,
        **settings: Any,
    ) -> Auto:
        """Have PyTorch and Keras trace themselves from now on, whatever the program does with them.

        A run is begun unless one is on. No framework is imported: where the program has not done
        so yet, everything waits for it. A second call changes nothing.

        Args:
            model: look at the forward of this model alone, or of several; None for all.
            optimizer: look at this optimizer alone, or at several; None for all.
            loader: look at this `DataLoader` alone, or at several; None for all.
            parts: names of the parts to record, or, with a minus before it, not to; setting
                `auto_parts`.
            steps: ``A:B`` for the steps from A up to B, counted from 0; setting `auto_steps`.
            depth: how deep modules within modules get spans of their own; setting `auto_depth`.
            modules: patterns of names or classes of modules that get them, too; setting
                `auto_modules`.
            device: record beside forward, backward, optimizers' steps and blocking collectives what
                the stream of the GPU does meanwhile, without waiting for it; setting `auto_device`.
            nvtx: open ranges of NVTX, for Nsight, with the same spans; setting `auto_nvtx`.
            itt: open ranges of ITT, for VTune, with the same spans; setting `auto_itt`.
            io: record what is done with files in `data_dir` and with those of checkpoints; setting
                `auto_io`. False has the run's `io` off, too.
            **settings: for the run, as `dftrace_ai.initialize` takes them.

        Returns:
            This object, for `remove`.

        Raises:
            ConfigError: a setting is unknown or its value is not accepted, or nobody brings a part.
            LogDirectoryError: the directory of the trace cannot be made or written.

        Example::

            import dftrace_ai

            dftrace_ai.auto(log_file="out/trace")
        """
        names = _joined(parts)
        strange = unknown_parts(frozenset().union(*values.named(names or "")))
        if strange:
            raise ConfigError(f"auto_parts: {strange}")
        given = {
            "auto_parts": names,
            "auto_steps": steps,
            "auto_depth": depth,
            "auto_modules": _joined(modules),
            "auto_device": device,
            "auto_nvtx": nvtx,
            "auto_itt": itt,
            "auto_io": io,
        }
        if io is False:
            settings["io"] = False
        config = _config(settings, {name: one for name, one in given.items() if one is not None})
        if recorder.lack():
            return self
        options = options_of(config, model=model, optimizer=optimizer, loader=loader)
        with self._lock:
            if self._options is not None:
                if options != self._options or options.models or options.optimizers:
                    tell(
                        logging.WARNING,
                        "auto is on, and goes on with the options that it has; remove it first",
                    )
            elif config.enabled:
                self._options = options
                strange = unknown_parts((options.parts or frozenset()) | options.without)
                if strange:  # of the environment or a file: the training goes on
                    tell(logging.WARNING, "auto_parts: %s", strange)
                for framework in GROUPS:
                    install = functools.partial(self._install, framework, options)
                    self._waiting.append(when_imported(framework, install))
        return self

    def __repr__(self) -> str:
        state = (
            "off"
            if self._options is None
            else ", ".join(self._removals) or "waiting for a framework"
        )
        return f"<dftrace auto, {state}>"

    @property
    def options(self) -> AutoOptions | None:
        """What the parts are told; None while it is off."""
        return self._options

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that are installed."""
        return tuple(self._removals)

    def remove(self) -> None:
        """Take everything out again: the framework is as it was, and the run goes on.

        Example::

            dftrace_ai.auto.remove()
        """
        with self._lock:
            options, self._options = self._options, None
            while self._waiting:
                self._waiting.pop()()
            while self._removals:
                name, removal = self._removals.popitem()
                try:
                    removal()
                except Exception as error:  # noqa: BLE001 - the others are taken out all the same
                    tell(logging.WARNING, "auto could not take out %s: %s", name, described(error))
            if options is not None:
                options.training.end()
                options.gate.live = options.gate.recording = False
                if options.gate.shared is not None:
                    options.gate.shared.value = False

    def _begin_run(self) -> None:
        if self._options is not None:
            self._options.training.begin()
            if "torch" in sys.modules:
                sample_rank(current_run())

    def _end_run(self) -> None:
        if self._options is not None:
            self._options.training.end()

    def _install(self, framework: str, options: AutoOptions) -> None:
        with self._lock:
            if options is not self._options:
                return
            if not options.gate.live:
                options.gate.live = True
                options.training.begin()
                self._removals.update(install_framework_parts(options))
            if framework == "torch":
                self._removals.update(install_torch_parts(options))
                sample_rank(current_run())
            else:
                self._removals.update(install_other_parts(framework, options))


def _joined(names: str | Sequence[str] | None) -> str | None:
    return names if names is None or isinstance(names, str) else ",".join(names)


def _config(settings: Mapping[str, Any], given: Mapping[str, Any]) -> Config:
    """Return the settings in force with those given over them; a run is begun where none is on."""
    run = current_run()
    if run is None or settings:
        run = initialize(**settings, **given)
    config = run._config_in_force()
    return Config(**{**config._values_given(), **given}) if given else config


auto = Auto()
"""Records the phases of a PyTorch training as spans: `dftrace_ai.auto()` in its first lines."""
register(Hook("auto", lambda _: auto._begin_run(), lambda _: auto._end_run()))
