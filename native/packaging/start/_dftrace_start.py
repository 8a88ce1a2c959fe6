"""Has a Python below `dftrace run` record from its first import of a framework on.

It lies beside the package, is loaded by a line of `dftrace_ai.pth`, and imports nothing that is not
there already: each Python that the launched program starts pays for it, also those without one.
"""

import os
import sys

VARIABLE = "DFTRACE_LAUNCH"
FRAMEWORKS = ("torch", "tensorflow", "keras")

# Programs that import torch to start the ranks of a job, or to compile for one: they train nothing,
# and a run of theirs would be the run of the ranks.
STARTERS = {"torchrun", "accelerate", "deepspeed"}
STARTING_MODULES = {
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.launch",
}
COMPILER = "torch/_inductor/compile_worker/__main__.py"


class Waiting:
    """A finder that knows frameworks alone, by what the others say, until one is imported."""

    def find_spec(self, name, path=None, target=None):
        """Return the spec that the finders behind this one have."""
        finders = list(sys.meta_path)
        if name not in FRAMEWORKS or self not in finders:
            return None
        for finder in finders[finders.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader):
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module):
            # On the loader for this one import, so that the module's is what it would be.
            vars(loader).pop("exec_module", None)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                begin()

        # What the import raises has no frame more than without us: Python leaves those out that
        # are called so.
        exec_module.__code__ = exec_module.__code__.replace(
            co_filename="<frozen importlib._bootstrap>", co_name="_call_with_frames_removed"
        )
        loader.exec_module = exec_module


def begin():
    """Begin a run where none is on, and call `auto`; what goes wrong is told once."""
    if _starts_others():
        return
    try:
        from dftrace_ai.integrations.launched import begin_run

        begin_run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
        # Whom it starts need not say so again, but for a subinterpreter, in which alone it fails.
        if "subinterpreter" not in str(error):
            os.environ.pop(VARIABLE, None)
        if sys.stderr is not None:
            said = f"dftrace run: nothing is recorded: {type(error).__name__}: {error}\n"
            sys.stderr.write(said)


def _starts_others():
    words, arguments = sys.orig_argv, sys.argv or [""]  # a program may have emptied it
    # What runs, behind the interpreter's own options and in front of the program's arguments.
    program = words[max(0, len(words) - len(arguments))]
    return (
        os.path.basename(arguments[0]) in STARTERS
        or program.removeprefix("-m") in STARTING_MODULES
        or any(word.endswith(COMPILER) for word in words[1:4])
    )


if not sys.modules.keys().isdisjoint(FRAMEWORKS):
    begin()
else:
    sys.meta_path.insert(0, Waiting())
