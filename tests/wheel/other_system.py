"""A Python that lacks what that of another system lacks: python other_system.py SYSTEM PROGRAM ARGS...

It shows each name that is missed, and not how another system behaves. The standard library is loaded
before, and keeps what it has.
"""

from __future__ import annotations

import asyncio  # noqa: F401
import concurrent.futures  # noqa: F401
import ctypes  # noqa: F401
import getpass  # noqa: F401
import http.server  # noqa: F401
import multiprocessing  # noqa: F401
import os
import platform  # noqa: F401
import runpy
import select
import shutil  # noqa: F401
import signal
import subprocess  # noqa: F401
import sys
import sysconfig
import tempfile  # noqa: F401
import webbrowser  # noqa: F401

MACOS = {
    "os": (
        "O_PATH O_TMPFILE O_DIRECT O_NOATIME sched_getaffinity sched_setaffinity memfd_create pidfd_open "
        "posix_fallocate posix_fadvise pipe2 getxattr setxattr listxattr splice copy_file_range getrandom "
        "eventfd getresuid unshare"
    ),
    "signal": "SIGRTMIN SIGRTMAX SIGPWR SIGSTKFLT sigtimedwait sigwaitinfo",
    "select": "epoll",
    "modules": "",
}
WINDOWS = {
    "os": MACOS["os"]
    + (
        " O_NOFOLLOW O_NONBLOCK O_CLOEXEC O_NOCTTY O_DIRECTORY O_SYNC O_DSYNC pread pwrite preadv pwritev "
        "fork forkpty register_at_fork geteuid getuid getegid getgid getgroups fchmod fchown chown lchown "
        "uname sysconf killpg getpgid getpgrp setsid setpgid WNOHANG mkfifo mknod statvfs fstatvfs "
        "getloadavg sync fdatasync lockf sendfile getpriority nice openpty ttyname posix_spawn chroot "
        "wait wait3 wait4 waitid getsid ST_RDONLY"
    ),
    "signal": (
        MACOS["signal"]
        + " SIGKILL SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD SIGALRM SIGPIPE SIGWINCH SIGTSTP SIGSTOP "
        "SIGCONT SIGXFSZ SIGXCPU SIGBUS SIGTTOU SIGTTIN pthread_sigmask pthread_kill sigwait setitimer "
        "alarm siginterrupt pause sigpending"
    ),
    "select": "epoll poll",
    "modules": "fcntl resource termios tty pty pwd grp syslog",
}
SYSTEMS = {"darwin": MACOS, "win32": WINDOWS}


class Without:
    """A finder of modules that are not there."""

    def __init__(self, names: str) -> None:
        self.names = set(names.split())

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def by_name(name: str, true):
    """A call that takes no number of a directory, and opens none."""

    def call(*given, **named):
        if any(key.endswith("dir_fd") and value is not None for key, value in named.items()):
            raise NotImplementedError(f"{name}: dir_fd unavailable on this platform")
        if name == "open" and os.path.isdir(given[0]):
            raise PermissionError(13, "Permission denied", given[0])
        if name == "rename" and os.path.lexists(given[1]):
            raise FileExistsError(
                17, "Cannot create a file when that file already exists", given[0]
            )
        return true(*given, **named)

    return call


def become(system: str) -> None:
    """Take away what that system has not."""
    lacks = SYSTEMS[system]
    sysconfig.get_config_vars()
    for package in (
        "orjson",
        "psutil",
        "pydantic",
        "rich.console",
        "typer",
        "zstandard",
        "yaml",
        "duckdb",
    ):
        __import__(package)  # which have wheels of that system
    for module in (os, signal, select):
        for name in lacks[module.__name__].split():
            vars(module).pop(name, None)
    for name in lacks["modules"].split():
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Without(lacks["modules"]))
    if system == "win32":
        os.supports_dir_fd.clear()
        for name in (
            "open",
            "stat",
            "lstat",
            "rename",
            "replace",
            "unlink",
            "mkdir",
            "link",
            "access",
        ):
            setattr(os, name, by_name(name, getattr(os, name)))
    sys.platform = system


if __name__ == "__main__":
    become(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
