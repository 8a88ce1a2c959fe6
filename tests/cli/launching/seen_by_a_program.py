"""A program that tells what it sees of itself and of those it starts, and ends as it is told."""

import inspect
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys


class Kept:
    pass


def seen():
    return {
        "name": __name__,
        "argv": sys.argv,
        "orig_argv": sys.orig_argv[1:],
        "path": sys.path,
        "flags": str(sys.flags),
        "warnoptions": sys.warnoptions,
        "customized": getattr(sys, "customized", None),
        "environment": {k: v for k, v in os.environ.items() if not k.startswith("DFTRACE_")},
    }


def everything():
    import torch

    main = sys.modules["__main__"]
    return {
        **seen(),
        "main": main.__dict__ is globals(),
        "file": __file__,
        "spec": getattr(__spec__, "name", None),
        "package": __package__,
        "kept": type(pickle.loads(pickle.dumps(Kept()))) is Kept,
        "stack": len(inspect.stack()),
        "hooks": [
            sys.excepthook is sys.__excepthook__,
            sys.displayhook is sys.__displayhook__,
            sys.gettrace() is None,
            sys.getprofile() is None,
        ],
        "handlers": {n: str(signal.getsignal(n)) for n in signal.valid_signals()},
        "loader": [type(torch.__loader__).__name__, sorted(vars(torch.__loader__))],
        "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "torch": sorted(vars(torch)),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "parent": os.getppid(),
    }


def told(pipe):
    import torch

    pipe.send({**seen(), "recorded": "dftrace_ai.run" in sys.modules, "torch": torch.__name__})


def of_children(methods):
    for method in methods:
        if method == "exec":
            for words in (["-c", BY_ITSELF], ["-I", "-c", BY_ITSELF]):
                yield words[0], json.loads(subprocess.check_output([sys.executable, *words]))
            continue
        context = multiprocessing.get_context(method)
        ours, theirs = context.Pipe()
        child = context.Process(target=told, args=(theirs,))
        child.start()
        yield method, ours.recv()
        child.join()
        yield f"{method} ended", child.exitcode


BY_ITSELF = """
import json, sys
found = "_dftrace_start" in sys.modules
print(json.dumps({"argv": sys.argv, "path": sys.path, "recorded": found}))
"""


def wait():
    print("ready", flush=True)
    signal.pause()


def hook(*_):
    print("a hook of the program's own")
    sys.exit(9)


if __name__ == "__main__":
    how = sys.argv[1]
    if how == "tell":
        # What a program has before it imports torch, and what it has then.
        before = [sorted(sys.modules), seen()]
        print(json.dumps([before, everything(), dict(of_children(sys.argv[2:]))]))
        sys.exit(3)
    if how == "no words":
        sys.argv.clear()
    import torch  # noqa: F401

    if how == "wait":
        wait()
    elif how == "raise":
        raise ValueError("of the program")
    elif how == "text":
        sys.exit("bye")
    elif how == "at once":
        os._exit(7)
    elif how == "abort":
        os.abort()
    elif how == "hook":
        sys.excepthook = hook
        raise ValueError("of the program")
