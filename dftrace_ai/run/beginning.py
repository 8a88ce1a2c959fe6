"""How a run begins: by its own settings, or by what the parent left in the environment."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import dftrace_ai._native as _native
from dftrace_ai import recorder
from dftrace_ai.errors import ConfigError
from dftrace_ai.run.ending import end, end_at_exit
from dftrace_ai.run.hooks import begin_hooks, fork_hooks
from dftrace_ai.run.run import LAUNCH_VARIABLE, PARENT, RUN_VARIABLE, Run, current_run
from dftrace_ai.wording import LOGGER, LastWord, ToldOnce, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.config.settings import Config
    from dftrace_ai.run.native_types import RunSettings


_told = ToldOnce()
_hooked = False


def _hook_into_process() -> None:
    """See to the end of this process and of its forked children, once."""
    global _hooked
    if _hooked:
        return
    atexit.register(end_at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    _hook_into_multiprocessing()
    # Last: interrupted before, it is done again, which does no harm.
    _hooked = True


class _ForkWitness:
    """What multiprocessing calls back in each of its children."""


_witness = _ForkWitness()


def _hook_into_multiprocessing() -> None:
    # A child of multiprocessing leaves by os._exit: of the ways to say a last word only its own
    # finalizers are run, and those are cleared after the fork, before the after-fork callbacks.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_witness, _end_with_worker)
        process = util.sys.modules["multiprocessing.process"]
        # A spawned one imports the program before it knows its parent, and calls nothing back.
        is_child = process.parent_process() is not None
        if is_child or getattr(process.current_process(), "_inheriting", False):
            _end_with_worker(_witness)


def _end_with_worker(_: _ForkWitness) -> None:
    util = sys.modules["multiprocessing.util"]
    util.Finalize(None, end_at_exit, exitpriority=-1000)


# Held while a run is begun: another thread waits and joins it. A signal handler of the same thread
# comes through, and finds the run that is being begun.
_beginning = threading.RLock()


class Asked(NamedTuple):
    """What somebody asked a run to be: a config, settings by name that win over it, or neither."""

    config: Config | None
    by_name: Mapping[str, object]


def hold(holder: object, asked: Asked) -> Run:
    """Begin a run, or join the one that is on; return it, held."""
    own_settings = asked.config is not None or bool(asked.by_name)
    # Before anything is held: a child that another thread forks meanwhile has to let go of it.
    _hook_into_process()
    with _beginning:
        while True:
            before: Run | None = _native.current_run()
            # A child that nothing was recorded for by its own wish may go its own way.
            if before is None or before._over or (own_settings and before._is_only_parents()):
                parents = None if before is None or before._over else before
                run = Run()
                run._take(holder)
                try:
                    if _native.exchange_run(before, run):
                        _begin(run, parents, asked)
                        return run
                except BaseException:
                    # Also what a signal's handler raises, anywhere: then nothing was begun.
                    _take_back(run, parents)
                    raise
                continue
            # Before it is held: who asks for what is not accepted holds nothing.
            without_effect = (
                _without_effect(before, asked) if own_settings and before._begun else []
            )
            if before._take(holder):
                _tell_once(before, without_effect)
                return before
            end(before, "finalize", None)


def _begin(run: Run, parents: Run | None, asked: Asked) -> None:
    configured = _configured(asked)
    LOGGER.setLevel(configured.log_level)
    settings = _settings(configured, parents)
    if parents is not None:
        end(parents, "finalize", None)
    run._config = configured
    if settings is not None:
        _tell_of_fork_server()
        _start(run, settings)
    run._begun = True


def _tell_of_fork_server() -> None:
    # Its workers have the environment that it was started with, by which they would find the run.
    module = sys.modules.get("multiprocessing.forkserver")
    if getattr(getattr(module, "_forkserver", None), "_forkserver_pid", None) is not None:
        before = "import torch" if os.environ.get(LAUNCH_VARIABLE) else "call initialize"
        tell(
            logging.WARNING,
            "multiprocessing's fork server was started before this run: what its workers record is "
            "not in it; %s before the first of them is started",
            before,
        )


def _take_back(run: Run, parents: Run | None) -> None:
    if _native.current_run() is not run:
        return
    if parents is None or parents._over:
        run._number = _native.run_number()
        end(run, "finalize", None)
    else:
        run._over = True
        _native.exchange_run(run, parents)


def _settings(config: Config, parents: Run | None) -> RunSettings | None:
    if not config.enabled or not _is_built():
        return None
    from dftrace_ai.run.core_settings import check_directory, run_settings

    check_directory(config)
    return run_settings(config, parents._settings if parents is not None else None)


def _is_built() -> bool:
    lacking = recorder.lack()
    if lacking is not None and _told.first(lacking):
        tell(logging.WARNING, "%s", lacking)
    return lacking is None


def _configured(asked: Asked) -> Config:
    from dftrace_ai.config.settings import Config
    from dftrace_ai.config.sources import load_config
    from dftrace_ai.run.core_settings import absolute

    config = asked.config
    given: Any = asked.by_name
    if config is None:
        config = load_config(**given)
    else:
        refuse_what_is_no_config(config)
        if given:
            config = Config(**{**config._values_given(), **given})
    places = {"log_file": config.log_file, "spool_dir": config.spool_dir}
    return config._with(
        {name: absolute(place) for name, place in places.items() if place is not None}
    )


def refuse_what_is_no_config(given: object) -> None:
    """Raise a ConfigError, which says what was meant, where no `Config` stands in its place."""
    from dftrace_ai.config.settings import Config

    if isinstance(given, Config):
        return
    if isinstance(given, (str, os.PathLike)):
        mend = f"name the setting, as in log_file={os.fspath(given)!r}"
    elif callable(given):
        mend = "a function is decorated with parentheses, @dftrace_ai.tracing()"
    else:
        mend = "give settings by name, as in ids=False"
    raise ConfigError(f"a Config is needed in this place, not a {type(given).__name__}: {mend}")


def _without_effect(run: Run, asked: Asked) -> list[str]:
    """Say which of the settings that somebody gave the run has otherwise."""
    configured, in_force = _configured(asked), run._config_in_force()
    names = {*asked.by_name, *(asked.config._values_given() if asked.config is not None else ())}
    return [
        f"{name} is {_shown(there)}, not {_shown(wanted)}"
        for name in sorted(names)
        if (in_force.enabled or name == "enabled")
        and (wanted := getattr(configured, name)) != (there := getattr(in_force, name))
    ]


def _shown(value: object) -> str:
    return repr(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _tell_once(run: Run, without_effect: list[str]) -> None:
    untold = [one for one in without_effect if one not in run._told_without_effect]
    run._told_without_effect.update(untold)
    if untold:
        tell(
            logging.WARNING,
            "a run is on and goes on with its own settings: %s",
            ", ".join(untold),
        )


def _start(run: Run, settings: RunSettings) -> None:
    # Loaded now: at the end of an interrupted program what is imported may make the interpreter
    # forget the interrupt, and in a signal's handler it may be half imported.
    import dftrace_ai.spools.recovery  # noqa: F401
    from dftrace_ai.run.core_settings import core_settings

    _hook_into_process()
    _take_signal(settings["dump_signal"])
    run._settings = settings
    run._number = _native.start(core_settings(settings))
    os.environ.update(settings["inheritable"])
    begin_hooks(run)


def _take_signal(name: str | None) -> None:
    if name is None:
        return
    import signal

    try:
        _native.set_dump_signal(int(signal.Signals[name]))
    except ValueError as error:
        raise ConfigError(f"dump_signal {name}: {error}; choose another one") from None


def join_run_of_parent() -> None:
    """Go on with the run of the process that started this one, if the environment names it."""
    # Still on when the package is imported a second time (sys.modules was cleared).
    if not os.environ.get(RUN_VARIABLE) or current_run() is not None or not _is_built():
        return
    from dftrace_ai.run.core_settings import settings_of_child

    settings = settings_of_child(os.environ)
    if settings is None:
        tell(
            logging.WARNING,
            "%s is not understood, or of another version of dftrace_ai: "
            "this process records nothing",
            RUN_VARIABLE,
        )
        return
    run = Run()
    run._take(PARENT)
    try:
        _start(run, settings)
    except ConfigError as error:
        tell(logging.WARNING, "%s", error)
        _start(run, {**settings, "dump_signal": None})
    run._begun = True
    _native.exchange_run(_native.current_run(), run)


def _after_fork() -> None:
    global _beginning
    _beginning = threading.RLock()
    run = current_run()
    if run is not None:
        _go_on(run)
    _hook_into_multiprocessing()


def _go_on(run: Run) -> None:
    run._lock = threading.RLock()
    run._last_word = LastWord()
    run._outcome = None
    if not run._begun and run._beginner != threading.get_ident():
        _go_on_without_beginner(run)
    if not run._over:
        fork_hooks(run)


def _go_on_without_beginner(run: Run) -> None:
    # The thread that was beginning it is not here. The child was made after the moment at which
    # recording was turned on, or before.
    if run._settings is not None and _native.is_on():
        run._number = _native.run_number()
        os.environ.update(run._settings["inheritable"])
        run._begun = True
    else:
        _native.finish(_native.run_number(), "finalize")
        run._over = True
        _native.exchange_run(run, None)
