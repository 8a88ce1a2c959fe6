"""The page of `dftrace ui` in a browser: by keys, mouse and finger, wide and narrow, light and dark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from analysis.lines.made_programs import Program
from analysis.report.made_pages import inspected
from analysis.trace_lines import small_trace
from analysis.why.made_runs import Training
from html_pages import EVIL
from live.programs import program
from ui.served_runs import ranks, serving, until

from dftrace_ai.page.palette import STATIC as PAGE_STATIC

VISIT = Path(__file__).with_name("visit.js")
STATIC = Path(__file__).parents[2] / "dftrace_ai" / "ui" / "static"
PLACES = (STATIC, PAGE_STATIC)
IMPORTED = re.compile(r"^import (?:[^;]* from )?'\./(\w+\.js)';", re.MULTILINE)
OF_PAGE = re.compile(r"^  (\w+): \[([^]]*)\]", re.MULTILINE)
NODE = shutil.which("node")
CHROMIUM = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
LIMIT_S = 300
NARROW, WIDE = 390, 1440

RUNNING = """
    dftrace_ai.initialize()
    for step in range(30):
        with ai.pipeline.step(step=step):
            with ai.compute.forward:
                time.sleep(0.001)
    with ai.comm.all_reduce:
        done("waits")
"""

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and NODE), reason="no chromium, or no node, on the path"
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one walk through all pages found."""
    folder = tmp_path_factory.mktemp("page")
    root = folder / "runs"
    ranks(root / "job" / "ranks", 8, late=5)
    Training(item_ms=20).write(root / "made" / "slow-loader", 1)
    Training(evaluate=20, checkpoint=(10, 30.0)).write(root / "made" / "evaluating", 1)
    inspected(root / "made" / "tensors")
    small_trace().write(root / "names" / EVIL.replace("/", "|")[:100] / "t-host-100.pfw")
    small_trace().write(root / "turned" / "a\u202egnp.\x1bx" / "t-host-100.pfw")
    (root / "made" / "none" / "evaluating").mkdir(parents=True)
    (root / "made" / "none" / "evaluating" / "t-host-900.pfw").write_text("[\n")
    (root / "bad").mkdir()
    (root / "bad" / "t-host-1.pfw.gz").write_bytes(b"no trace at all")
    at = [(20.0, 1.0, [("grows", "train.py", 66)])]
    Program(steps=48).write(root / "lines" / "before")
    Program(steps=48, since=24, loop=at).write(root / "lines" / "after")
    spare = Training().write(folder / "spare", 1)
    (folder / "empty").mkdir()

    runs = {
        "ranks": "job/ranks",
        "loader": "made/slow-loader",
        "evaluating": "made/evaluating",
        "tensors": "made/tensors",
        "evil": str(next((root / "names").iterdir()).relative_to(root)),
        "none": "made/none/evaluating",
        "bad": "bad",
        "live": "job/live",
        "nobody": "made/nobody",
    }
    pages = {name: {"hash": f"#/run/{quote(run, safe='')}"} for name, run in runs.items()}
    for name in ("ranks", "loader", "evaluating", "tensors"):
        pages[name]["mark"] = "run-drawn"
    pages["runs"] = {"hash": "", "mark": "runs-drawn"}
    pair = "/".join(quote(runs[name], safe="") for name in ("evaluating", "loader"))
    pages["compare"] = {"hash": f"#/compare/{pair}", "mark": "compare-drawn"}
    alike = "/".join(quote(runs[name], safe="") for name in ("evaluating", "none"))
    pages["alike"] = {"hash": f"#/compare/{alike}", "mark": "compare-drawn"}
    more = f"{pair}/{quote(runs['ranks'], safe='')}/{quote(runs['tensors'], safe='')}"
    pages["several"] = {"hash": f"#/compare/{more}", "mark": "compare-drawn"}
    orders = folder / "orders.json"
    with (
        program(RUNNING, root / "job" / "live", RANK="0", WORLD_SIZE="1"),
        serving(root, folder / "cache") as (served, _),
        serving(folder / "empty", folder / "cache") as (empty, _),
    ):
        until(served.rows, lambda rows: all(row["state"] != "reading" for row in rows.values()))
        orders.write_text(
            json.dumps(
                {
                    "address": served.address,
                    "empty": empty.address,
                    "pages": pages,
                    "ranks": pages["ranks"]["hash"],
                    "lines": f"#/compare/{quote('lines/before', safe='')}/{quote('lines/after', safe='')}",
                    "spare": [str(spare), str(root / "new" / "2026-11-27_00-00-00-new")],
                }
            ),
            "utf-8",
        )
        done = subprocess.run(
            [str(NODE), str(VISIT), str(orders)], capture_output=True, text=True, timeout=LIMIT_S
        )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "address": served.address}


def test_no_page_errs_asks_elsewhere_or_does_what_the_policy_forbids(told: dict[str, Any]) -> None:
    # That a run is not there is an answer that a browser's console has, too.
    errors = [error for error in told["errors"] if "nobody" not in error]
    assert not errors
    assert all(url.startswith((told["address"], told["empty"])) for url in told["asked"])
    refused, acted = told["forbidden"]
    assert "connect-src" in refused
    assert any(name.startswith("script-src") for name in refused)
    assert not acted


def test_no_page_is_wider_than_its_window(told: dict[str, Any]) -> None:
    for name, found in told["looks"].items():
        (wide, _), (narrow, window) = found["widths"]
        assert wide <= WIDE, name
        assert (narrow, window) == (NARROW, NARROW), name


def test_no_figure_is_cut_in_a_narrow_window(told: dict[str, Any]) -> None:
    assert {name: found["cut"] for name, found in told["looks"].items()} == {
        name: [] for name in told["looks"]
    }
    assert all(found["strip"] > 0.9 for found in told["looks"].values())


def test_all_that_can_be_used_or_seen_has_a_name(told: dict[str, Any]) -> None:
    assert {name: found["unnamed"] for name, found in told["looks"].items()} == {
        name: [] for name in told["looks"]
    }


def test_each_kind_of_run_says_what_it_is(told: dict[str, Any]) -> None:
    said = {name: found["head"] for name, found in told["looks"].items()}
    words = {name: found["words"] for name, found in told["looks"].items()}
    assert "wait for data" in said["loader"]
    assert "5" in words["ranks"]
    assert "Ranks by time" not in words["loader"]
    assert "Not finite" in words["tensors"]
    assert "evaluation" in words["evaluating"]
    assert "A step takes" in said["compare"]
    assert said["several"].startswith("How long a step takes, beside that of evaluating")
    assert all(f"{letter} " in words["several"] for letter in "ABCD")
    titles = {name: found["title"] for name, found in told["looks"].items()}
    assert titles["alike"] == "made/evaluating → made/none/evaluating · dftrace"
    assert titles["compare"] == "evaluating → slow-loader · dftrace"
    assert "By name" in words["loader"]
    assert "Processes" in words["loader"]
    assert "By name" not in words["none"]
    assert "Processes" not in words["none"]
    assert said["nobody"] == "This cannot be shown"
    assert "unreadable" in words["bad"].lower()
    # Names are words, and nothing else.
    assert all(found["images"] == 0 for found in told["looks"].values())
    assert r"a\u202egnp.\u001bx" in words["runs"]
    assert not any("\u202e" in one or "\x1b" in one for one in words.values())
    assert told["nothing"].startswith("No runs below")


def test_the_list_is_filtered_sorted_and_compared_by_keys(told: dict[str, Any]) -> None:
    found = told["list"]
    assert "job/ranks" in found["all"]
    assert found["word"] == found["condition"] == ["job/ranks"]
    steps = [number for number in found["sorted"] if number]
    assert steps == sorted(steps, reverse=True)
    assert found["order"] == "descending"
    # What has no steps stands last.
    assert found["sorted"] == [*steps, *[0] * (len(found["sorted"]) - len(steps))]
    assert found["chosen"] == 2
    assert "A step takes" in found["compared"]
    assert found["back"] == len(found["all"])
    assert found["opened"].startswith("#/run/")
    assert found["keys"]
    first, reloaded, none = found["baseline"]
    assert (reloaded, none) == (first, None)
    assert first in found["all"]


def test_rows_stand_still_until_somebody_asks(told: dict[str, Any]) -> None:
    found = told["still"]
    assert found["moved"] == 0
    assert found["button"] == "Show 1 new"
    assert "new/2026-11-27_00-00-00-new" in found["shown"]


def test_a_run_is_gone_through_by_keys_and_mouse(told: dict[str, Any]) -> None:
    found = told["run"]
    low, high = found["zoomed"]
    assert found["reloaded"] == [low, high]
    assert found["moved"][0] > low
    assert found["moved"][1] - found["moved"][0] == pytest.approx(high - low, abs=1e-5)
    assert re.match(r"[\d.]+ to [\d.]+ s, steps \d+ to \d+, p50 ", found["window"])
    # Of the window, not of the whole run: steps of 30 ms come every 31.
    assert re.fullmatch(r"Outside of steps:between [\d.]+ ms 3\.\d %", found["outside"])
    assert found["dragged"][0] < found["dragged"][1]
    assert " of " in found["strip"]
    assert re.match(r"rank \d+ at ", found["cell"])
    assert "rank=" in found["rank"]
    assert found["searching"] == "search"
    assert "of all tracks" in found["flame"]
    assert found["sorted"] == 1
    # However often the window was changed: back is the list.
    assert found["back"] == ""
    assert bool(found["plots"]) == (STATIC / "uplot.js").is_file()
    if found["plots"]:
        assert re.match(r"step \d+ at ", found["read"])
        assert found["plotted"][0] < found["plotted"][1]
        # A drag over numbers of steps is one over the time that these took.
        assert found["plotted"][0] <= found["numbered"][0] < found["numbered"][1]
    else:
        assert "uPlot" in told["looks"]["ranks"]["words"]


def test_a_running_job_is_shown_as_it_is_now_and_held_still(told: dict[str, Any]) -> None:
    found = told["live"]
    assert found["tile"].startswith("rank 0")
    assert "comm.all_reduce" in found["tile"]
    assert re.search(r"data [\d.]+ s old", found["age"])
    assert found["title"] == "It runs"
    assert found["held"] == "true"
    assert found["aged"]


def test_a_run_is_gone_through_by_finger(told: dict[str, Any]) -> None:
    found = told["finger"]
    assert found["swiped"][0] < found["swiped"][1]
    assert re.match(r"rank \d+ at ", found["read"])
    assert not found["small"]


def test_lines_of_a_run_and_of_steps_are_shown_beside_those_of_others(told: dict[str, Any]) -> None:
    lines = told["lines"]
    assert lines["ranges"] == [str(first) for first in range(0, 48, 3)]
    note, grows = lines["runs"]
    assert "more than beside it" in note
    change = re.fullmatch(
        r"program\.grows \(train\.py:66\): ([\d.]+) ms a step, 0 ns beside it: ▲ \+([\d.]+) ms",
        grows,
    )
    assert change, grows
    assert change[1] == change[2]
    assert float(change[1]) == pytest.approx(10, rel=0.25)
    halves = re.search(r": ([\d.]+) ms a step, 0 ns beside it", lines["halves"][1])
    assert halves, lines["halves"]
    assert float(halves[1]) == pytest.approx(20, rel=0.25)
    note, grows = lines["some"]
    assert note == "Times are those of a step."
    assert re.search(r": ([\d.]+) ms a step, \d\d % of all samples", grows)


def test_scripts_are_asked_for_before_they_import_each_other() -> None:
    def needed(script: str) -> set[str]:
        found: set[str] = set()
        left = {script}
        while left:
            found |= left
            texts = [
                next(at / name for at in PLACES if (at / name).is_file()).read_text()
                for name in left
            ]
            left = {name for text in texts for name in IMPORTED.findall(text)} - found
        return found

    shown = set(re.findall(r'="(\w+\.js)"', (STATIC / "index.html").read_text()))
    text = (STATIC / "first.js").read_text()
    asked = {page: set(re.findall(r"'(\w+\.js)'", names)) for page, names in OF_PAGE.findall(text)}
    assert set(asked) == {"run", "compare"}
    assert needed("app.js") <= shown
    assert needed("runs.js") <= shown | {"runs.js"}
    for page, names in asked.items():
        assert needed(f"{page}.js") == names | shown - {"app.js"}, page


def test_names_are_text_only_and_nothing_is_inline() -> None:
    scripts = [*STATIC.glob("*.js")]
    assert len(scripts) > 10
    for path in scripts:
        if path.name == "uplot.js":
            continue
        text = path.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert len(text.splitlines()) <= 600, path.name
    page = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"\son\w+=|<style|\sstyle=|<script>", page)
