"""Findings and sections of other packages: installed as pip does it, asked by commands, and kept apart."""

from __future__ import annotations

import html
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

from dftrace_ai.analysis import Run as read_run
from dftrace_ai.analysis import open_traces

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = DOCS / "guide" / "plug-ins.md"
SCHEMA = json.loads((ROOT / "schemas" / "why.schema.json").read_text("utf-8"))
REPORT_SCHEMA = json.loads((ROOT / "schemas" / "report.schema.json").read_text("utf-8"))
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


SHOWS = """
import sys
from dftrace_ai.analysis.report import LinePlot, Paragraph, ReportSection, Table

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\\x1b[31m"

def hostile(run):
    print("to the standard output")
    run.figures.losses.append("a lie")
    run.summary.files[0].losses["dropped"] = 77
    run.figures.steps.__dict__["p50_ns"] = 1
    nan = float("nan")
    return ReportSection(MARKUP, [
        Paragraph(MARKUP),
        Table([MARKUP, "n"], [[MARKUP, 12345], ["b", nan], ["c", None]]),
        LinePlot(MARKUP, [0, 1, 2], {MARKUP: [1, nan, 2], "two": [None] * 3}, MARKUP, MARKUP, MARKUP),
    ])

def again(run):
    return ReportSection("Again", [Paragraph(str(run.report(sys.argv[-1] + ".other")))])

def raises(run):
    raise RuntimeError("no such\\nGPU")

def ends(run):
    sys.exit(5)

def strange(run):
    return ["a text"]

def untitled(run):
    return ReportSection(" ")

def ragged(run):
    return ReportSection("T", [Table(["a"], [[1, 2]])])

def endless(run):
    return ReportSection("T", [Table(["a"], [[1]] * 201)])

def html(run):
    return ReportSection("T", ["<b>bold</b>"])

def unordered(run):
    return ReportSection("T", [LinePlot("p", [2, 1], {"y": [1, 2]})])
"""
SHOWS_WRONG = ("raises", "ends", "strange", "untitled", "ragged", "endless", "html", "unordered")


def installed(
    site: Path, name: str, version: str, points: dict[str, str], group: str = "findings"
) -> None:
    """What pip leaves of a package beside its modules."""
    facts = site / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    add_points(facts / "entry_points.txt", group, points)


def add_points(file: Path, group: str, points: dict[str, str]) -> None:
    lines = [f"{point} = {value}" for point, value in points.items()]
    with file.open("a") as written:
        written.write("\n".join([f"[dftrace_ai.{group}]", *lines, ""]))


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
    (project,) = blocks(PAGE, "toml")
    told = tomllib.loads(project.text)
    facts, modules = told["project"], told["tool"]["setuptools"]["py-modules"]
    groups = facts["entry-points"]
    installed(site, facts["name"], facts["version"], groups["dftrace_ai.findings"])
    (written,) = site.glob("*.dist-info/entry_points.txt")
    add_points(written, "report_sections", groups["dftrace_ai.report_sections"])
    for module, code in zip(modules, blocks(PAGE, "python"), strict=True):
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


def test_the_section_of_the_guide_is_on_the_page(shop: Shop, tmp_path: Path) -> None:
    page, plots = tmp_path / "report.html", tmp_path / "plots"
    words = ("report", str(shop.run), "-o", str(page))
    done = shop.ask(*words, "--plots", str(plots), "--json")
    assert (done.status, done.err) == (0, "")
    figures = json.loads(done.out)
    jsonschema.validate(figures, REPORT_SCHEMA)
    (section,) = figures["sections"]
    assert (section["name"], section["package"]) == ("shop-steps", "shop-findings 1.2")
    said, plot, rows = section["blocks"]
    assert said == {"kind": "paragraph", "text": "Rank 0 is the one at the till."}
    run = read_run(shop.run)
    times = run.steps[0].time_ns
    assert plot["lines"] == {"step": [ns / 1e6 for ns in times[:1000].tolist()]}
    first = run.summary.spans[0]
    assert rows["rows"][0] == [first.name, first.count, first.total_us / 1e3]
    text = page.read_text("utf-8")
    assert "<h2 id=s-section-1>Steps of the shop</h2><p class=faint>by shop-steps of shop-" in text
    assert '<table id="section-1-3" class=sorts>' in text
    assert text.index("<h2 id=s-section-1>") < text.index("<h2 id=s-facts>")
    assert (plots / "section-1-2.svg").read_text().count("<polyline") == 1
    # A setting leaves it out, and so does who says so in Python.
    shop.ask(*words, DFTRACE_PLUGINS="-shop-steps")
    assert "s-section-" not in page.read_text("utf-8")
    told = json.loads(shop.ask("info", "--json").out)["plug-ins"]
    shown = told["dftrace_ai.report_sections shop-steps"]
    assert shown == "shop_report:show (shop-findings 1.2)"


def test_a_section_is_drawn_by_the_page_and_its_faults_cost_no_other(
    shop: Shop, tmp_path: Path
) -> None:
    """Nothing of a hostile package is markup, changes what we say, or reaches JSON on stdout."""
    (shop.site / "shows.py").write_text(SHOWS)
    points = {f"a-{name}": f"shows:{name}" for name in ("hostile", "again", *SHOWS_WRONG)}
    points["a-gone"] = "no.such:thing"
    installed(shop.site, "shows", "0.1", points, "report_sections")
    page = tmp_path / "report.html"
    done = shop.ask("report", str(shop.run), "--json", "-o", str(page))
    assert done.status == 0, done.err
    figures = json.loads(done.out)
    jsonschema.validate(figures, REPORT_SCHEMA)
    names = [one["name"] for one in figures["sections"]]
    assert names == ["a-again", "a-hostile", "shop-steps"]
    assert figures["sections"][1]["blocks"][1]["rows"][1:] == [["b", None], ["c", None]]
    lines = figures["plugin_faults"]
    assert [line.split()[2] for line in lines] == sorted(
        {"a-gone"} | {f"a-{name}" for name in SHOWS_WRONG}
    )
    assert all(" of shows 0.1 failed: " in line for line in lines)
    assert "a-raises of shows 0.1 failed: RuntimeError: no such" in "\n".join(lines)
    told = [line for line in done.err.splitlines() if " failed: " in line]
    assert told == [f"dftrace: {line}" for line in lines]
    assert "to the standard output" in done.err
    text = page.read_text("utf-8")
    assert all(f"<li>{html.escape(line)}</li>" in text for line in lines)
    body = text.partition("<script type=")[0]
    assert "<script>alert" not in body
    assert "<img" not in body
    assert "&lt;script&gt;alert(1)" in body
    assert "\x1b" not in text
    plain = json.loads(shop.ask("report", str(shop.run), "--json", DFTRACE_PLUGINS="none").out)
    ours = {"sections", "plugin_faults", "made_at"}
    assert {key: figures[key] for key in figures.keys() - ours} == {
        key: plain[key] for key in plain.keys() - ours
    }
