"""What a release consists of: the workflow that builds it, its version, and the pages that tell of both."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from datetime import date
from typing import Any

import pytest
import yaml
from build_wheels import VERSIONS
from docs.pages import DOCS, ROOT, between, table

import dftrace_ai

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORKFLOW: dict[str, Any] = yaml.safe_load(
    (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETTINGS = PROJECT["tool"]["cibuildwheel"]
JOBS = WORKFLOW["jobs"]
# What a step makes, and what another takes.
MADE = {"dist", "wheelhouse"}


def steps(job: str) -> list[dict[str, Any]]:
    return JOBS[job]["steps"]


def commands() -> list[str]:
    """Of the workflow, and of cibuildwheel in each job."""
    found = [step["run"] for job in JOBS for step in steps(job) if "run" in step]
    found.append(SETTINGS["test-command"].replace("{project}/", ""))
    for system in ("linux", "macos", "windows"):
        found += SETTINGS[system]["before-all"]
    return found


def test_each_file_that_a_command_names_is_in_the_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    kept = set(listed.stdout.splitlines()) if listed.returncode == 0 else None
    named = set()
    for command in commands():
        for word in shlex.split(command):
            if "/" in word and word[0] not in "/$-{" and ":" not in word:
                named.add(word)
    named = {word for word in named if word.split("/")[0] not in MADE}
    assert {
        "native/packaging/uplot.py",
        "native/packaging/compression",
        "tests/wheel/try_wheel.py",
        "dftrace_ai/_version.py",
    } == named
    for word in named:
        assert (ROOT / word).exists(), word
        assert kept is None or any(f"{path}/".startswith(f"{word}/") for path in kept), word


def test_a_job_takes_what_another_has_made() -> None:
    given = [step["with"]["name"] for step in steps("sdist") if "upload" in step.get("uses", "")]
    taken = [step["with"]["name"] for step in steps("wheels") if "download" in step.get("uses", "")]
    assert given == taken == ["sdist"]
    assert JOBS["wheels"]["needs"] == "sdist"
    assert JOBS["publish"]["needs"] == ["sdist", "wheels"]
    assert WORKFLOW["permissions"] == {"contents": "read"}
    # What stands in an event is no part of a script.
    assert not [c for c in commands() if "${{" in c]


def test_the_page_names_the_wheels_that_are_built() -> None:
    rows = table(between(DOCS / "install.md", "wheels"))
    matrix = [
        [one["system"], one["archs"], "yes" if one["system"] == "Linux" else "no"]
        for one in JOBS["wheels"]["strategy"]["matrix"]["include"]
    ]
    assert rows == matrix
    assert set(SETTINGS["test-extras"]) <= set(PROJECT["project"]["optional-dependencies"])
    assert SETTINGS["build"] == [f"cp{v.replace('.', '')}-*" for v in VERSIONS]


def test_both_libraries_are_found_where_they_are_installed() -> None:
    for system in ("linux", "macos", "windows"):
        folder = SETTINGS[system]["environment"]["CMAKE_PREFIX_PATH"]
        configure, _ = SETTINGS[system]["before-all"]
        assert f"-DCMAKE_INSTALL_PREFIX={folder}" in shlex.split(configure)
    given = SETTINGS["windows"]["environment"]["CMAKE_ARGS"]
    assert given == " ".join(
        f"-D{name}_STATIC={folder}/lib/lib{library}.a"
        for name, library in (("DEFLATE", "deflate"), ("ZSTD", "zstd"))
    )


def test_a_release_has_a_section_with_its_day() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.M)
    if headings[0] == "Unreleased":
        del headings[0]
    newest = re.fullmatch(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)", headings[0])
    assert newest, headings[0]
    assert newest[1] == dftrace_ai.__version__
    assert date.fromisoformat(newest[2])
    numbers = [tuple(map(int, one.split(" ")[0].split("."))) for one in headings]
    assert numbers == sorted(set(numbers), reverse=True)


@pytest.mark.parametrize(
    ("tag", "status"),
    [(f"v{dftrace_ai.__version__}", 0), (f"v{dftrace_ai.__version__}1", 1), ("v", 1)],
)
def test_a_tag_that_is_not_the_version_builds_nothing(tag: str, status: int) -> None:
    (script,) = [s["run"] for s in steps("sdist") if "GITHUB_REF_NAME" in s.get("run", "")]
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=ROOT,
        env={**os.environ, "GITHUB_REF_NAME": tag},
        check=False,
    )
    assert done.returncode == status
