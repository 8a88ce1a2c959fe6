"""`dftrace run`: a program that traces itself without a change of its code."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shlex
import shutil
import signal
import site
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dftrace_ai.cli import run_folder
from dftrace_ai.cli.commands import QuickCommand
from dftrace_ai.cli.shared_options import not_together
from dftrace_ai.cli.terminal import complain, shown
from dftrace_ai.errors import ConfigError, DftraceError
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dftrace_ai.config.settings import Config


NO_PROGRAM = (
    "run: which program? dftrace run train.py, dftrace run -m package.train, or, for what starts "
    "Python in the end, dftrace run -- torchrun train.py"
)
NOT_EXECUTABLE = 126
NOT_FOUND = 127

# How often the machine is sampled, and lines of the program, unless somebody says so.
SAMPLING = {"system_counters_s": "1", "lines_hz": "20"}
FIRST_WITH_STACKS = (3, 11)

START_FILE = "dftrace_ai.pth"
LOOK = "import sys; sys.exit('_dftrace_start' not in sys.modules)"
LOOK_LIMIT_S = 20.0

PYTHON_NAME = re.compile(r"python(\d+(\.\d+)?)?")
FIRST_LINE_BYTES = 256
# Of Python's own options: what ends them, and those whose value may be the next word.
ENDS = ("-c", "-m", "-")
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")

# The program gets what this one was given: what reads and prints here changes some of it.
_environ = dict(os.environ)

STEM = "trace"
PLACE_VARIABLE = "DFTRACE_LOG_FILE"
PLACE_DIGITS = 8

# Who says how the run was, for the program itself, which gives it the time to.
END_VARIABLE = "DFTRACE_LAUNCH_END"
# Of a run that is on where the launcher is called: what it starts has a run of its own.
LAUNCH = "DFTRACE_LAUNCH"
OF_ANOTHER_RUN = ("DFTRACE_RUN", "DFTRACE_RUN_SETTINGS", LAUNCH, END_VARIABLE)


class Command(QuickCommand):
    """A command whose own options end at the program; the words behind that are the program's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        with_value = {
            word
            for parameter in self.params
            if not getattr(parameter, "is_flag", False)
            for word in parameter.opts
            if word.startswith("-")
        }
        end = 0
        while end < len(args):
            word = args[end]
            if not word.startswith("-") or word in ("-", "--") or word[:2] in ("-m", "-c"):
                break
            end += 2 if word in with_value else 1
        rest = args[end:]
        if not (rest or ctx.resilient_parsing or {"-h", "--help"} & set(args)):
            raise DftraceError(NO_PROGRAM)
        return super().parse_args(ctx, [*args[:end], *(["--", *rest] if rest else [])])


def command(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT|-m MODULE|-- PROGRAM [ARGS]...",
            help="A script or module for this Python, or, behind --, any program that starts "
            "Python in the end, such as torchrun.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Where the traces go; else into a new folder of its own, traces/DATE_TIME-SCRIPT.",
        ),
    ] = None,
    log_file: Annotated[
        str | None,
        typer.Option("--log-file", metavar="PREFIX", help="The same, and how their names begin."),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="What to record, or, with a minus before it, not: -data,-transfer.",
        ),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="A:B", help="Only the steps A up to B, from 0.")
    ] = None,
    depth: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="How deep modules within modules.")
    ] = None,
    modules: Annotated[
        str | None,
        typer.Option(metavar="PATTERNS", help="Modules by name or class, at any depth."),
    ] = None,
    device: Annotated[
        bool | None,
        typer.Option("--device/--no-device", help="Record what the GPU does meanwhile, too."),
    ] = None,
    nvtx: Annotated[
        bool | None,
        typer.Option("--nvtx/--no-nvtx", help="Open ranges for Nsight with the spans."),
    ] = None,
    itt: Annotated[
        bool | None,
        typer.Option("--itt/--no-itt", help="Open ranges for VTune with the spans."),
    ] = None,
    io: Annotated[
        bool | None,
        typer.Option("--io/--no-io", help="Record files, those in the setting data_dir."),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(metavar="DIRS|all", help="Where the data are, with colons between them."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(metavar="dp=0,pp=1", help="Place in a parallel training, if none finds it."),
    ] = None,
    compression: Annotated[
        str | None, typer.Option(metavar="gzip|zstd|none", help="Of the traces.")
    ] = None,
    args: Annotated[
        bool | None,
        typer.Option("--args/--no-args", help="Write arguments (step, epoch) with events."),
    ] = None,
    summary: Annotated[
        bool | None,
        typer.Option("--summary/--no-summary", help="Tell at the end what steps lost time to."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting. May be given again."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file of settings.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Say nothing of the run when it has ended.")
    ] = False,
) -> None:
    """Run a PyTorch or Keras training that traces itself, without a change of its code.

    The program takes this process's place: its arguments, signals and exit status are its own.
    Nothing is loaded into it before it imports torch, TensorFlow or Keras; then it is as if it had
    called dftrace_ai.auto(). So it is in all Pythons of this environment that it starts.

    Example: dftrace run --steps 100:120 train.py --lr 0.1

    Exit status: that of the program; 2 when the call is wrong, 126 when the program cannot be
    started, 127 when there is none of the name.
    """
    switches = {
        "auto_device": device,
        "auto_nvtx": nvtx,
        "auto_itt": itt,
        "auto_io": io,
        "args": args,
        "summary": summary,
    }
    not_together({"--out": out is not None, "--log-file": log_file is not None})
    given = {
        "log_file": log_file if out is None else os.path.join(out, ""),
        "auto_parts": parts,
        "auto_steps": steps,
        "auto_depth": depth,
        "auto_modules": modules,
        "data_dir": data_dir,
        "layout": layout,
        "compression": compression,
        **{name: str(one) for name, one in switches.items() if one is not None},
        **_others(settings or ()),
    }
    line = _command_line(program)
    label = run_folder.label(line if program[0] == "--" else program)
    environ = _without_another_run(_environ)
    told = {name: text for name, text in given.items() if text is not None}
    try:
        variables = _variables(environ, told, config, label, quiet=quiet)
    except OSError as error:  # no room, no descriptors: the program goes on without its trace
        variables = None
        complain(f"run: nothing will be recorded: {_reason(error)}")
    if variables is not None:
        environ.update(variables)
        reason = _why_silent(line, environ)
        if reason is not None:
            complain(f"run: {shown(reason)}")
    _become(line, environ)


def _others(settings: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in settings:
        name, equals, text = one.partition("=")
        if not equals:
            raise ConfigError(f"--set {one}: NAME=VALUE is needed, such as --set ids=false")
        found[name.strip().replace("-", "_")] = text
    return found


def _without_another_run(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what a run around this one has left in it."""
    # That its program calls `dftrace run` itself does not make a part of it of this run: who asks
    # for a run gets one, with its folder and its words. Settings go on to it, but for the place.
    outer = environ.get(LAUNCH, "").partition("@")[2].partition(".")[0]
    is_outers = outer == _digest(environ.get(PLACE_VARIABLE, ""))[:PLACE_DIGITS]
    left_out = (*OF_ANOTHER_RUN, *([PLACE_VARIABLE] if is_outers else []))
    return {name: text for name, text in environ.items() if name not in left_out}


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode(errors="replace")).hexdigest()[:32]


def _reason(error: OSError) -> str:
    place = f" ({quoted(os.fsdecode(error.filename))})" if error.filename is not None else ""
    return shown(f"{error.strerror or error}{place}")


def _told_where_else(folder: run_folder.NewFolder, config: Config) -> str:
    failure = folder.failure
    cause = failure.__cause__ if failure and isinstance(failure.__cause__, OSError) else failure
    is_given = "log_file" in config._values_given()
    here = f"in {quoted(str(config.log_file.parent))}" if is_given else "here"
    reason = cause.strerror if cause and cause.strerror else cause
    return (
        f"there can be no {run_folder.FOLDER} {here} ({reason}): the trace goes to "
        f"{quoted(str(folder.path))}; -o says where else"
    )


def _variables(
    environ: Mapping[str, str],
    given: Mapping[str, str],
    file: Path | None,
    label: str,
    *,
    quiet: bool,
) -> dict[str, str] | None:
    """Return the variables that give the program its settings; None where it shall not record."""
    for name in OF_ANOTHER_RUN:
        os.environ.pop(name, None)
    from dftrace_ai.config.project_file import look
    from dftrace_ai.config.settings import SETTINGS
    from dftrace_ai.config.sources import load_config, settings_given
    from dftrace_ai.run.core_settings import absolute, check_directory
    from dftrace_ai.run.ranks import find_rank, job_name
    from dftrace_ai.run.run import OF_JOB

    # Looked for once, from where this is called: the program gets what was found.
    sources, project = settings_given(file, environ, _values(given))
    told = set(sources)
    if sys.version_info < FIRST_WITH_STACKS:
        told.add("lines_hz")
    given = {**{name: each for name, each in SAMPLING.items() if name not in told}, **given}
    config = load_config(file, environ, **_values(given))
    of_project = [
        name for name, one in (project.settings if project else {}).items() if sources[name] == one
    ]
    if not config.enabled:
        if project and "enabled" in of_project:
            complain(
                f"run: nothing will be recorded: by {project.path}, enabled is false; "
                "--set enabled=true records"
            )
        return None
    if not quiet and project is None and (disbelieved := look().disbelieved):
        complain(f"run: {disbelieved}")
    if project and of_project and not quiet:
        complain(f"run: by {project.path}: {', '.join(of_project)}")
    _check_parts(config.auto_parts)
    job = job_name(environ)
    folder = run_folder.writable_folder(
        config.log_file.parent if "log_file" in config._values_given() else None,
        label,
        job,
        environ,
        lambda path: check_directory(config._with({"log_file": path / STEM}) if path else config),
    )
    if folder.failure is not None:
        complain(f"run: {_told_where_else(folder, config)}")
    if not folder.is_named:
        config = config._with({"log_file": folder.path / STEM})
    if job and (job.is_own or not folder.is_named):
        launch = OF_JOB + _digest(job.name, "" if folder.is_named else folder.path.name)
    else:
        launch = secrets.token_hex(16)
    # Whatever the directory in which a process of it imports its framework.
    places = {"log_file": config.log_file, "spool_dir": config.spool_dir}
    variables = {SETTINGS[name].variable: text for name, text in given.items()}
    variables.update(
        (
            SETTINGS[name].variable,
            "none" if (value := getattr(config, name)) is None else str(value),
        )
        for name in of_project
    )
    variables.update(
        (SETTINGS[name].variable, str(absolute(place))) for name, place in places.items() if place
    )
    # A name of the launch, where it writes, and which process is the program: this one, by then.
    where = _digest(variables[PLACE_VARIABLE])[:PLACE_DIGITS]
    variables[LAUNCH] = f"{launch}@{where}.{os.getpid()}"
    quiet = quiet or config.summary
    goes = [] if folder.is_named else [one for one in folder.made if not one.is_symlink()]
    if (goes or not quiet) and find_rank(environ).rank in (None, 0):
        speaker = _speaker_of_the_end(folder.path, launch, goes, quiet=quiet)
        if not quiet:
            variables[END_VARIABLE] = str(speaker)
    named = file or environ.get("DFTRACE_CONFIG")
    if named:
        variables["DFTRACE_CONFIG"] = str(absolute(Path(named)))
    return variables


def _values(given: Mapping[str, str]) -> dict[str, str | None]:
    """Return settings of the command line, in which ``none`` is none where that is accepted."""
    from dftrace_ai.config.settings import SETTINGS

    return {
        name: None
        if name in SETTINGS and SETTINGS[name].optional and text.strip().lower() == "none"
        else text
        for name, text in given.items()
    }


def _speaker_of_the_end(folder: Path, launch: str, goes: Sequence[Path], *, quiet: bool) -> int:
    """Start what says how the run was when this process has ended; return its number, or 0."""
    # `goes`: what is to go if it stays empty.
    from dftrace_ai.interpreters import clean_environment, interpreter, paths

    home = ""
    with contextlib.suppress(OSError):  # it was removed
        home = str(Path.cwd())
    facts = (
        *(str(os.getpid()), str(time.time_ns()), str(folder), launch, home, paths()),
        *("quiet" if quiet else "", *map(str, goes)),
    )
    # Not as a file of its own: what lies beside it has names of the standard library's.
    program = "import sys; exec(open(sys.argv.pop(1), 'rb').read())"
    script = str(Path(__file__).with_name("run_end.py"))
    try:
        line = [*interpreter(), "-c", program, script, *facts]
    except OSError:
        return 0
    ours, its = os.pipe()
    try:
        between = os.fork()
    except OSError:
        return 0  # so many processes are not allowed
    if between:
        os.close(its)
        os.waitpid(between, 0)
        with os.fdopen(ours, "rb") as said:
            return int(said.read() or b"0")
    # No child of the program, which may wait for any; nor in its session, by which it is signalled.
    with contextlib.suppress(BaseException):
        if not os.fork():
            os.setsid()
            os.write(its, str(os.getpid()).encode())
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 0)
            os.dup2(nowhere, 1)
            for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - which are closed meanwhile
                with contextlib.suppress(OSError):
                    if int(name) > 2:
                        os.close(int(name))
            os.chdir("/")
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # until it is ready
            os.execve(line[0], line, clean_environment())  # noqa: S606 - this interpreter
    os._exit(0)


def _check_parts(text: str) -> None:
    """Raise a ConfigError where a part is named that nobody brings."""
    from dftrace_ai.config.settings import SETTINGS

    if text == SETTINGS["auto_parts"].default:
        return
    from dftrace_ai.config import values
    from dftrace_ai.integrations.registry import unknown_parts

    strange = unknown_parts(frozenset().union(*values.named(text)))
    if strange:
        raise ConfigError(f"auto_parts: {strange}")


def _become(line: Sequence[str], environ: Mapping[str, str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # this Python ignores them
    for file, stream in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        if stream is None:  # it was closed by who called
            os.close(file)
    try:
        os.execvpe(line[0], list(line), environ)  # noqa: S606 - that is what is asked for
    except OSError as error:
        complain(f"run: {shown(line[0])}: {error.strerror}")
        raise typer.Exit(
            NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        ) from error


def _command_line(words: Sequence[str]) -> list[str]:
    """Return the program to start and its arguments; a script that is none of Python's raises."""
    if words[0] == "--":
        return list(words[1:])
    _refuse_what_is_no_script(words)
    return [sys.executable, *words]


def _refuse_what_is_no_script(words: Sequence[str]) -> None:
    word = words[0]
    if word.startswith("-"):
        return
    mend = f"what starts Python in the end goes behind --: dftrace run -- {shlex.join(words)}"
    if not Path(word).exists():
        if not shutil.which(word):
            from difflib import get_close_matches

            there = [one.name for one in Path(word).parent.glob("*.py")]
            near = get_close_matches(Path(word).name, there, 1)
            mend = f"did you mean {Path(word).with_name(near[0])}?" if near else "give its path"
        raise DftraceError(f"run: there is no script {quoted(word)} here; {mend}")
    interpreter = _interpreter_of(word)
    if _first_bytes(word).startswith(b"\x7fELF") or (interpreter and not _is_python(interpreter)):
        raise DftraceError(f"run: {quoted(word)} is no Python script; {mend}")


def _first_bytes(path: str) -> bytes:
    if not Path(path).is_file():
        return b""
    try:
        with Path(path).open("rb") as file:
            return file.read(FIRST_LINE_BYTES)
    except OSError:
        return b""


def _interpreter_of(path: str) -> list[str]:
    """Return the words of the first line of a script that name its interpreter, if it has such."""
    first = _first_bytes(path).partition(b"\n")[0]
    if not first.startswith(b"#!"):
        return []
    try:
        words = shlex.split(os.fsdecode(first[2:]))
    except ValueError:
        return []
    if words and Path(words[0]).name == "env":
        del words[0]
        while words and (words[0] == "-S" or "=" in words[0]):
            del words[0]
    return words


def _is_python(words: Sequence[str]) -> bool:
    return bool(words) and PYTHON_NAME.fullmatch(Path(words[0]).name) is not None


def _why_silent(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Tell why a program records nothing, where that can be seen before it is started."""
    # None where its Python will load us, or where it is something else that may start one.
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    words = [program, *command[1:]]
    if not _is_python(words):
        words = _interpreter_of(program)
        if not _is_python(words):
            return None
    python = shutil.which(words[0], path=environ.get("PATH")) or words[0]
    options = _options_of_python(words[1:])
    loads = python == sys.executable and not options and _is_loaded_here()
    if not loads:  # or from a place that one there names
        look = [python, *options, "-c", LOOK]
        try:
            found = subprocess.run(  # noqa: S603 - the interpreter that is about to be started
                look,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=LOOK_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None  # the program itself will tell
        loads = found.returncode != 1
    if loads:
        return None
    how = " ".join([python, *options])
    return (
        f"nothing will be recorded: {quoted(how)} does not load dftrace_ai when it starts; "
        "it has to be installed in the site-packages of that Python, which -S leaves out"
    )


def _options_of_python(words: Sequence[str]) -> list[str]:
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word.startswith(ENDS[:2]) or word == ENDS[2]:
            break
        options.append(word)
        if word in WITH_VALUE:
            options += [value for value in [next(rest, None)] if value is not None]
    return options


def _is_loaded_here() -> bool:
    places = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    return any(Path(place, START_FILE).exists() for place in places)
