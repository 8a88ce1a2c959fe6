"""Has a Python below `dftrace run` record from its first import of a framework on.

It lies beside the package, is loaded by a line of `dftrace_ai.pth`, and imports nothing that is not
there already: each Python that the launched program starts pays for it, also those without one.
"""

import os
import sys

VARIABLE = "DFTRACE_LAUNCH"
END_VARIABLE = "DFTRACE_LAUNCH_END"
END_LIMIT_S = 5.0
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


# The run that was begun; True where there is none.
_begun = False


class Waiting:
    """A finder that knows frameworks alone, by what the others say, until one is imported.

    The program's finders are compared with nothing: one may raise where it is.
    """

    def find_spec(self, name, path=None, target=None):
        """Return the spec that the finders behind this one have."""
        if name not in FRAMEWORKS:
            return None
        behind = False
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None) if behind else None
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                _watch(spec, self._there)
                return spec
            behind = behind or finder is self
        return None

    def _there(self):
        for place, finder in enumerate(sys.meta_path):
            if finder is self:
                del sys.meta_path[place]
                begin()
                break


def _watch(spec, then):
    """Call a function behind the import that goes by a spec: it sets a mark when it has ended."""
    kind = type(spec)

    class Underway(kind):
        def __setattr__(self, name, value):
            if name != "_initializing" or value:
                super().__setattr__(name, value)
                return
            self.__class__ = kind
            setattr(self, name, value)
            if sys.modules.get(self.name) is not None:
                then()

    try:
        spec.__class__ = Underway
    except TypeError:  # a spec of another make, which is told of at the end
        return


def begin():
    """Begin a run where none is on, and call `auto`; what goes wrong is told once."""
    global _begun
    _begun = True
    if _starts_others():
        return
    try:
        from dftrace_ai.integrations.launched import begin_run

        run = begin_run()
        _begun = run if run.enabled else True
    except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
        # Whom it starts need not say so again, but for a subinterpreter, in which alone it fails.
        if "subinterpreter" not in str(error):
            os.environ.pop(VARIABLE, None)
        _say(f"nothing is recorded: {type(error).__name__}: {error}")


def _say(what):
    if sys.stderr is not None:
        sys.stderr.write(f"dftrace run: {what}\n")


def _starts_others():
    words, arguments = sys.orig_argv, sys.argv or [""]  # a program may have emptied it
    # What runs, behind the interpreter's own options and in front of the program's arguments.
    program = words[max(0, len(words) - len(arguments))]
    return (
        os.path.basename(arguments[0]) in STARTERS
        or program.removeprefix("-m") in STARTING_MODULES
        or any(word.endswith(COMPILER) for word in words[1:4])
    )


def _tell_at_exit():
    """Have the program itself, and none that it starts, say so where nothing has been recorded."""
    name, dot, program = os.environ.get(VARIABLE, "").rpartition(".")
    if not dot:
        return
    speaker = os.environ.pop(END_VARIABLE, "")
    os.environ[VARIABLE] = name  # another interpreter of this process is not the program
    if program == str(os.getpid()):
        import atexit
        import time

        atexit.register(_hear_the_end, program, speaker)
        atexit.register(_tell_of_nothing, program, time.time())


def _hear_the_end(program, speaker):
    """Have it said how the run was, before whoever waits for this process goes on."""
    if program != str(os.getpid()) or not speaker.isdigit():
        return
    import time

    try:  # noqa: SIM105 - what that takes is not loaded here
        sys.stdout.flush()
    except Exception:  # noqa: BLE001, S110 - whatever it is, Python tells of it in a moment
        pass
    until = time.monotonic() + END_LIMIT_S
    asked = False
    try:
        # A process that has ended has no words any more, though it may still be there.
        while time.monotonic() < until:
            with open(f"/proc/{speaker}/cmdline", "rb") as file:
                if b"run_end.py" not in file.read():
                    return
            if not asked:
                os.kill(int(speaker), 10)  # SIGUSR1
                asked = True
            time.sleep(0.005)
    except (OSError, KeyboardInterrupt):
        pass


def _tell_of_nothing(program, since):
    if _begun is True or program != str(os.getpid()):
        return
    # A run that has ended has no path if nothing was recorded.
    if _begun and _begun.path is not None:
        return
    prefix = os.environ.get("DFTRACE_LOG_FILE", "")
    try:
        # What it has started may have recorded, or itself by a call of ours.
        for one in os.scandir(os.path.dirname(prefix) or "."):
            is_named = one.name.startswith(os.path.basename(prefix) + "-")
            if is_named and one.stat().st_mtime >= since - 1 and _is_of_this_launch(one):
                return
    except OSError:
        pass
    except Exception:  # noqa: BLE001 - what lies there may be anything
        return
    there = [name for name in FRAMEWORKS if sys.modules.get(name) is not None]
    what = "nothing was recorded"
    if _begun and _begun._config_in_force().flight_recorder:
        what = "no trace was written"
        why = "a flight recorder writes when it is dumped, by dump_signal or dftrace_ai.dump()"
    elif _begun:
        why = f"no model, optimizer, loader or collective of {there[0]} was used"
    elif there:
        why = (
            f"{there[0]} was imported past what waits for it, by a finder of the program's own; "
            "call dftrace_ai.auto() in the program"
        )
    else:
        why = (
            f"the program has imported none of {', '.join(FRAMEWORKS)}; annotate it, and call "
            "dftrace_ai.initialize()"
        )
    try:  # noqa: SIM105 - what that takes is not loaded here
        _say(f"{what}: {why}")
    except (OSError, ValueError):  # it has closed its stream
        pass


def _is_of_this_launch(entry):
    """Return whether a file says that, or does not say whose it is: others may write there, too."""
    if not entry.is_file():
        return False
    with open(entry.path, "rb") as file:
        head = file.read(8192)
    if head.startswith(b"\x1f\x8b"):
        import zlib

        head = zlib.decompressobj(31).decompress(head, 8192)
    launch = os.environ.get(VARIABLE, "").partition("@")[0]
    return b'"launch":' not in head or f'"launch":"{launch}"'.encode() in head


_tell_at_exit()
if not sys.modules.keys().isdisjoint(FRAMEWORKS):
    begin()
else:
    sys.meta_path.insert(0, Waiting())
