"""Findings of other packages: installed as pip does it, asked by commands, and kept apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
from analysis.why.made_runs import Training
from conftest import clean_environment
from docs.pages import DOCS, ROOT, blocks
from safety.commands import COMMAND

from dftrace_ai.analysis import open_traces

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = DOCS / "guide" / "plug-ins.md"
SCHEMA = json.loads((ROOT / "schemas" / "why.schema.json").read_text("utf-8"))
BREAKS = """
import sys
print("loaded")

def raises(run):
    print("to the standard output")
    run.verdict.parts.clear()
    raise RuntimeError("no such\\nGPU")

def ends(run):
    sys.exit(5)

def strange(run):
    return ["a text"]

def endless(run):
    from dftrace_ai.analysis.why import PluginFinding
    while True:
        yield PluginFinding("again")

def severe(run):
    from dftrace_ai.analysis.why import PluginFinding
    return PluginFinding("odd", severity="fatal")

def odd(run):
    from dftrace_ai.analysis.why import PluginFinding
    return PluginFinding("odd", evidence={"x": run})
"""
FAULTY = ("raises", "ends", "strange", "endless", "severe", "odd")


def installed(site: Path, name: str, version: str, points: dict[str, str]) -> None:
    """What pip leaves of a package beside its modules."""
    facts = site / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{point} = {value}" for point, value in points.items()]
    text = "\n".join(["[dftrace_ai.findings]", *lines, ""])
    (facts / "entry_points.txt").write_text(text)


class Done(NamedTuple):
    status: int
    out: str
    err: str


class Shop(NamedTuple):
    """A run, and where packages lie."""

    run: Path
    site: Path

    def ask(self, *words: str, **env: str) -> Done:
        done = subprocess.run(
            [*COMMAND, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**clean_environment(), "PYTHONPATH": str(self.site), "COLUMNS": "300", **env},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def why(self, *words: str, **env: str) -> Done:
        return self.ask("why", str(self.run), *words, **env)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A training in which nothing is wrong by our rules, and the package of the guide."""
    site = tmp_path / "site"
    (code,) = blocks(PAGE, "python")
    (project,) = blocks(PAGE, "toml")
    told = tomllib.loads(project.text)["project"]
    points = told["entry-points"]["dftrace_ai.findings"]
    installed(site, told["name"], told["version"], points)
    (module,) = {value.partition(":")[0] for value in points.values()}
    (site / f"{module}.py").write_text(code.text)
    return Shop(Training(optimizer=0.3, steps=60).write(tmp_path / "run", 1), site)


def test_the_package_of_the_guide_is_asked_by_commands(shop: Shop) -> None:
    done = shop.why("--threshold", "compute=2")
    assert done.status == 0
    assert done.out.startswith("NOTHING ELSE STANDS OUT\n")
    by = "(warning, high confidence) by slow-optimizer of shop-findings 1.2\n"
    assert by in done.out
    assert " of the steps. Use the fused one of the shop. (" in done.out
    assert shop.why("--fail-on", "warning").status == 1
    assert by.strip() in shop.why("--markdown").out
    verdict = json.loads(shop.why("--json").out)
    jsonschema.validate(verdict, SCHEMA)
    (found,) = verdict["of_plugins"]
    assert found["evidence"] == {"share": verdict["parts"]["optimizer"]["share"]}
    assert [one["kind"] for one in verdict["findings"]] == ["compute-bound"]
    # A setting leaves it out, and only it.
    file = shop.site / "settings.yaml"
    file.write_text("plugins: [-slow-optimizer]\n")
    for name, value in (
        ("DFTRACE_PLUGINS", "none"),
        ("DFTRACE_PLUGINS", "another"),
        ("DFTRACE_CONFIG", str(file)),
    ):
        done = shop.why("--fail-on", "warning", **{name: value})
        assert (done.status, "plug-in" in done.out) == (0, False), value
    assert by in shop.why(DFTRACE_PLUGINS="slow-optimizer").out
    told = json.loads(shop.ask("info", "--json").out)["plug-ins"]
    shown = told["dftrace_ai.findings slow-optimizer"]
    assert shown == "shop_findings:judge (shop-findings 1.2)"


def test_text_has_room_for_three(shop: Shop) -> None:
    (shop.site / "many.py").write_text(
        "from dftrace_ai.analysis.why import PluginFinding\n"
        "def judge(run):\n"
        "    rows = sum(len(batch['name']) for batch in run.traces.batches(['name']))\n"
        "    return [PluginFinding(f'{rows} events,\\n{at}', severity='info') for at in range(5)]\n"
    )
    installed(shop.site, "many", "2", {"all-many": "many:judge"})
    lines = [line for line in shop.why().out.splitlines() if line.startswith("  plug-in ")]
    events = sum(len(batch["name"]) for batch in open_traces([shop.run]).batches(["name"]))
    by = "(info, medium confidence) by all-many of many 2"
    assert lines[:3] == [f"  plug-in   {events} events, {at} {by}" for at in range(3)]
    assert lines[3:] == ["  plug-in   3 more findings; --json has all"]
    assert shop.why("--fail-on", "critical").status == 0


def test_a_fault_of_a_package_costs_its_own_findings_alone(shop: Shop) -> None:
    """Of the first of them what it does to the verdict, and what it prints, reaches nobody else."""
    (shop.site / "breaks.py").write_text(BREAKS)
    points = {f"a-{name}": f"breaks:{name}" for name in FAULTY} | {"a-gone": "no.such:thing"}
    installed(shop.site, "breaks", "0.1", points)
    done = shop.why("--json")
    assert done.status == 0, done.err
    verdict: dict[str, Any] = json.loads(done.out)
    assert [one["name"] for one in verdict["of_plugins"]] == ["slow-optimizer"]
    told = [note for note in verdict["notes"] if note.startswith("the plug-in ")]
    assert [note.split()[2] for note in told] == sorted(points)
    assert all(" of breaks 0.1 failed: " in note for note in told)
    assert any("a-raises of breaks 0.1 failed: RuntimeError: no such" in note for note in told)
    assert done.err == f"loaded{os.linesep}to the standard output{os.linesep}"
    plain = json.loads(shop.why("--json", DFTRACE_PLUGINS="none").out)
    assert {**verdict, "of_plugins": [], "notes": plain["notes"]} == plain
