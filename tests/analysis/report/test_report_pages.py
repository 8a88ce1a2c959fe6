"""The page in a browser, with names that want to act there; and the files that are written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest
from analysis.report.made_pages import (
    LAYERS,
    MANY_LAYERS,
    MANY_STEPS,
    hostile,
    inspected,
    large,
)
from analysis.trace_lines import TraceLines, small_trace
from analysis.why.made_runs import Training, write_ranks
from html_pages import EVIL, Page
from perfetto import engine
from safety.commands import dftrace, invoke

from dftrace_ai.analysis import Run
from dftrace_ai.analysis.texts import time_text
from dftrace_ai.errors import DftraceError
from dftrace_ai.page.files import new_file

OPEN_PAGES = Path(__file__).with_name("open_pages.js")
CHROMIUM = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
LIMIT_S = 300
MOST_BYTES = 4_000_000
NAMES = 100_000


def in_browser(folder: Path, orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Opens pages in one browser; returns what went wrong, and answers, of each."""
    told = folder / "orders.json"
    told.write_text(json.dumps([{**one, "page": str(one["page"])} for one in orders]), "utf-8")
    done = subprocess.run(
        [engine.node(), str(OPEN_PAGES), str(told)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports on runs of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    made: dict[str, Path] = {}
    for name in ("starved", "layers", "evil", "none", "large", "ranks"):
        traces = folder / name
        traces.mkdir()
        if name == "starved":
            Training(item_ms=20, steps=400, epochs=2, workers=1).write(traces, 1)
        elif name == "layers":
            inspected(traces)
        elif name == "evil":
            hostile(traces, NAMES)
        elif name == "large":
            large(traces)
        elif name == "ranks":
            write_ranks(traces, [Training(steps=8, epochs=1, workers=0, comm_ms=5, world=20)] * 20)
        else:
            small_trace().write(traces / "t-host-1.pfw")
        made[name] = folder / f"{name}.html"
        # What is hostile has a process with bounded memory of its own.
        command = dftrace if name == "evil" else invoke
        done = command("report", traces, "-o", made[name])
        assert done.status == (1 if name == "evil" else 0), done.err
    return made


# What people do on a page: look at a cell, change the theme, save plots.
USED = """(async () => {
  const svg = document.querySelector('svg[data-heat]');
  const said = [];
  if (svg) {
    const box = svg.getBoundingClientRect();
    const place = new DOMPoint(Number(svg.dataset.left) + 0.5 * svg.dataset.wide,
        Number(svg.dataset.top) + 0.5 * svg.dataset.tall).matrixTransform(svg.getScreenCTM());
    svg.dispatchEvent(new PointerEvent('pointermove',
        {bubbles: true, clientX: place.x, clientY: place.y}));
    said.push(document.getElementById('tip').textContent);
  }
  const named = document.querySelector('svg [data-tip]');
  if (named) {
    named.dispatchEvent(new PointerEvent('pointermove', {bubbles: true}));
    said.push(document.getElementById('tip').textContent);
  }
  const paper = () => getComputedStyle(document.body).backgroundColor;
  const before = paper();
  document.getElementById('theme').click();
  const after = paper();
  const pictures = [];
  for (const plot of document.querySelectorAll('figure svg[id]')) {
    const text = window.dftraceReport.standalone(plot);
    const read = new DOMParser().parseFromString(text, 'image/svg+xml');
    pictures.push([plot.id, !read.querySelector('parsererror'), !text.includes('var(')]);
  }
  let png = null;
  if (document.querySelector('figure svg')) {
    const blob = await window.dftraceReport.pngOf(document.querySelector('figure svg'), 1);
    const bytes = new Uint8Array(await blob.arrayBuffer());
    png = [bytes[1], bytes[2], bytes[3]];
  }
  return {title: document.title, said, colours: [before, after], pictures, png,
          images: document.images.length, scripts: document.scripts.length,
          acting: [...document.querySelectorAll('*')].filter((one) =>
              [...one.attributes].some((name) => name.name.startsWith('on'))).length,
          wide: document.documentElement.scrollWidth - innerWidth};
})()"""


# What they do by keyboard and by finger: each line is what was then to be seen or heard.
BY_HAND = """(() => {
  const said = {};
  const press = (on, ...keys) => {
    for (const key of keys) on.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
  };
  const seen = (query, at = document) => at.querySelector(query).textContent;
  const rows = (table) => [...table.tBodies[0].rows].map((row) => row.cells[1].textContent);

  const names = document.getElementById('names'), before = rows(names);
  const head = names.tHead.rows[0].cells[1].querySelector('button');
  said.sorted = [1, 2, 3].map(() => {
    head.click();
    return [head.closest('th').getAttribute('aria-sort'), rows(names)];
  });
  said.sorted.unshift([null, before]);
  const counts = names.tHead.rows[0].cells[2].querySelector('button');
  counts.click();
  said.counts = [...names.tBodies[0].rows].map((row) => Number(row.cells[2].dataset.value));

  const flame = document.querySelector('canvas.flame'), told = () => seen('.flame-told');
  const heard = () => seen('.flame-told ~ .heard');
  flame.focus();
  press(flame, '0');
  said.whole = told();
  press(flame, 'ArrowDown', 'ArrowDown');
  said.child = heard();
  press(flame, 'ArrowRight');
  said.sibling = told();
  press(flame, 'ArrowLeft', 'Enter');
  said.zoomed = [heard(), document.querySelector('.flame-bar button').disabled];
  press(flame, 'Escape', 'Escape');
  said.back = document.querySelector('.flame-bar button').disabled;
  const search = document.querySelector('.flame-bar input');
  press(document.body, 'f');
  said.searches = document.activeElement === search;
  search.value = 'E';
  search.dispatchEvent(new InputEvent('input', {bubbles: true}));
  said.found = seen('.flame-found');
  press(search, 'Enter');
  said.match = told();
  search.value = 'no such span';
  search.dispatchEvent(new InputEvent('input', {bubbles: true}));
  said.missing = seen('.flame-found');
  press(search, 'Escape');
  said.emptied = [search.value, seen('.flame-found')];
  const box = flame.getBoundingClientRect();
  flame.dispatchEvent(new MouseEvent('click', {bubbles: true, clientX: box.left + 5, clientY: box.top + 45}));
  said.clicked = told();

  const tip = document.getElementById('tip'), shown = () => tip.hidden ? null : tip.textContent;
  const parts = document.getElementById('plot-parts');
  parts.focus();
  press(parts, 'ArrowRight');
  said.plot = [shown(), seen('#heard'), parts.querySelectorAll('.here').length];
  press(parts, 'End');
  said.last = shown();
  parts.blur();
  said.left = [shown(), parts.querySelectorAll('.here').length];
  const bar = parts.querySelector('[data-tip]').getBoundingClientRect();
  parts.dispatchEvent(new PointerEvent('pointerdown', {bubbles: true, pointerType: 'touch',
      clientX: bar.left + 1, clientY: bar.top - 10}));
  for (const lifted of ['pointerup', 'pointerleave']) {
    document.dispatchEvent(new PointerEvent(lifted, {pointerType: 'touch'}));
  }
  said.finger = shown();
  document.body.dispatchEvent(new PointerEvent('pointerdown', {bubbles: true, pointerType: 'touch'}));
  said.away = shown();
  const heat = document.querySelector('svg[data-heat][id]');
  heat.focus();
  press(heat, 'Home', 'ArrowDown', 'ArrowRight');
  said.cell = shown();
  heat.blur();

  const select = document.querySelector('select[data-of=maps]');
  const maps = () => [...document.querySelectorAll('#maps figure')].map((one) => one.checkVisibility());
  said.maps = [maps()];
  select.value = '1';
  select.dispatchEvent(new Event('change', {bubbles: true}));
  said.maps.push(maps());
  return said;
})()"""


# Words of a plot that lie over others, over marks of slow steps, or outside; what is cut on the page.
CROWDED = """(() => {
  const over = [];
  for (const svg of document.querySelectorAll('figure svg')) {
    if (!svg.checkVisibility()) continue;
    const whole = svg.getBoundingClientRect();
    const words = [...svg.querySelectorAll('text')].map(
        (one) => [one.textContent, one.getBoundingClientRect()]);
    const marks = [...svg.querySelectorAll('path.slow')].map(
        (one) => ['a slow step', one.getBoundingClientRect()]);
    words.forEach(([said, a], at) => {
      if (a.left < whole.left - 1 || a.right > whole.right + 1 || a.top < whole.top - 1 ||
          a.bottom > whole.bottom + 1) over.push([svg.id || svg.ariaLabel, said, 'outside']);
      for (const [other, b] of [...words.slice(at + 1), ...marks]) {
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 &&
            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5) {
          over.push([svg.id || svg.ariaLabel, said, other]);
        }
      }
    });
  }
  const cut = [...document.querySelectorAll('.wide')].filter(
      (one) => one.scrollWidth > one.clientWidth).map((one) => one.firstChild.id);
  // How much smaller than it is written anything is.
  const scales = [...document.querySelectorAll('figure svg')].filter((one) => one.checkVisibility())
      .map((one) => one.getBoundingClientRect().width / one.viewBox.baseVal.width);
  return {over, cut, least: Math.min(1, ...scales), wide: document.documentElement.scrollWidth - innerWidth,
          plots: [...document.querySelectorAll('figure svg[id]')].map((one) => one.id)};
})()"""
A4_WIDTH = 703
TELEPHONE = 390


class Opened(NamedTuple):
    """What a browser tells of pages: those used, of the files saved, of a notebook, of the words."""

    used: list[dict[str, Any]]
    saved: list[dict[str, Any]]
    notebook: dict[str, Any]
    crowded: list[tuple[str, dict[str, Any]]]
    by_hand: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def opened(pages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """All that is asked of the browser, which is started once."""
    folder = tmp_path_factory.mktemp("opened")
    used = [{"page": page, "ask": USED, "dark": name == "layers"} for name, page in pages.items()]
    used.append({"page": pages["starved"], "dark": True, "media": "print", "ask": USED})
    # As a notebook has it: beside other things on a page that is not ours.
    (folder / "traces").mkdir()
    cell = folder / "notebook.html"
    run = Run(hostile(folder / "traces", 100))
    cell.write_text(f"<!doctype html><p>{run._repr_html_()}")
    frame = "document.querySelector('iframe').srcdoc.includes('<svg')"
    buttons = [f"#s-loader ~ figure [data-save={kind}]" for kind in ("svg", "png")]
    saving = [
        {"page": pages["layers"], "save": {"button": button, "folder": str(folder / "saved")}}
        for button in buttons
    ]
    looked_at = [("large", "", 1000), ("large", "print", A4_WIDTH), ("starved", "", 1000)]
    looked_at += [("layers", "print", A4_WIDTH), ("ranks", "", 1440)]
    looked_at += [(name, "", TELEPHONE) for name in ("large", "starved", "layers", "none", "ranks")]
    views = [
        {"page": pages[name], "ask": CROWDED, "media": media, "width": width}
        for name, media, width in looked_at
    ]
    by_hand = {"page": pages["layers"], "ask": BY_HAND}
    told = in_browser(folder, [*used, *saving, {"page": cell, "ask": frame}, *views, by_hand])
    many = len(used)
    crowded = [
        (f"{name} {media} {width}", answer)
        for (name, media, width), answer in zip(looked_at, told[many + 3 : -1], strict=True)
    ]
    return Opened(told[:many], told[many : many + 2], told[many + 2], crowded, told[-1], folder)


@pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path")
def test_ten_thousand_steps_and_two_hundred_layers_can_be_read(
    pages: dict[str, Path], opened: Opened
) -> None:
    text = pages["large"].read_text("utf-8")
    assert len(text) < MOST_BYTES / 2
    figures = Page(text).figures
    assert figures["steps"]["count"] == MANY_STEPS
    assert figures["tensors"]["layers"] == MANY_LAYERS
    drawn = [f"plot-{plot}" for plot in Page(text).plots]
    expected = {
        "parts",
        "epochs",
        "phases",
        "steps",
        "distribution",
        "slow-0",
        "slow-1",
        "slow-2",
        "flame",
    }
    expected |= {"loader", "tensor-0", "tensor-1", "layer-23", "counter-0"}
    assert {f"plot-{plot}" for plot in expected} <= set(drawn)
    for name, told in opened.crowded:
        assert told["errors"] == [], name
        answer = told["answer"]
        assert answer["over"] == [], name
        assert answer["wide"] <= 0, name
        if name.startswith("large"):
            assert answer["plots"] == drawn
        # On a telephone tables are moved sideways; paper cannot be.
        if not name.endswith(str(TELEPHONE)):
            assert answer["cut"] == [], name
        # And its plots are drawn for it, not made smaller.
        if "print" not in name:
            assert answer["least"] >= 0.95, name
    # The layer that is not finite has its name beside the map, and its neighbours what differs.
    map_text = text[text.index('id="plot-tensor-0"') :].partition("</svg>")[0]
    assert re.search(r'class="small strong">…137\.', map_text)
    assert len(re.findall(r'class="small">…\d+\.', map_text)) > 60
    titles = re.findall(r'class="strong">(…\d+\.[^<]*)<', text)
    assert len(titles) == len(set(titles)) == 24


@pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path")
def test_a_browser_shows_them_without_an_error_and_obeys_no_name(
    pages: dict[str, Path], opened: Opened
) -> None:
    answers, notebook = opened.used, opened.notebook
    assert notebook == {"errors": [], "answer": True}
    assert opened.saved == [
        {"errors": [], "answer": f"loader.{suffix}"} for suffix in ("svg", "png")
    ]
    ET.parse(opened.folder / "saved" / "loader.svg")
    assert (opened.folder / "saved" / "loader.png").read_bytes().startswith(b"\x89PNG")
    for name, told in zip([*pages, "print"], answers, strict=True):
        assert told["errors"] == [], name
        answer = told["answer"]
        assert answer["title"].endswith(": report"), name
        assert (answer["images"], answer["scripts"], answer["acting"]) == (0, 2, 0), name
        assert answer["wide"] <= 0, name
        drawn = Page(pages["starved" if name == "print" else name].read_text("utf-8")).plots
        assert [plot for plot, _, _ in answer["pictures"]] == [f"plot-{plot}" for plot in drawn]
        assert all(whole and coloured for _, whole, coloured in answer["pictures"]), name
        assert answer["png"] == list(b"PNG"), name
    by_name = dict(zip([*pages, "print"], (told["answer"] for told in answers), strict=True))
    light, dark = by_name["starved"]["colours"]
    assert light == "rgb(255, 255, 255)" != dark
    assert by_name["layers"]["colours"] == [dark, light]
    # On paper it is light, whatever the screen.
    assert by_name["print"]["colours"] == [light, light]
    cell, *_ = by_name["layers"]["said"]
    assert cell == "model.layers.0\niteration 0\ncur_amax: 0.01"
    assert "<script>" in by_name["evil"]["said"][0]
    assert not {"\x1b", "\u202e"} & set("".join(by_name["evil"]["said"]))


@pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path")
def test_pages_are_used_by_keyboard_and_by_finger(pages: dict[str, Path], opened: Opened) -> None:
    assert opened.by_hand["errors"] == []
    said = opened.by_hand["answer"]
    (none, before), (up, first), (down, second), (again, third) = said["sorted"]
    assert (none, up, down, again) == (None, "ascending", "descending", None)
    assert first == sorted(before)
    assert second == sorted(before, reverse=True)
    assert third == before
    assert said["counts"] == sorted(said["counts"], reverse=True)
    flame = Page(pages["layers"].read_text("utf-8")).figures["flame"]["frames"]
    whole = sum(one["total_ns"] for one in flame if one["parent"] < 0)
    top = max(range(len(flame)), key=lambda at: (flame[at]["parent"] < 0, flame[at]["total_ns"]))
    kids = [one for one in flame if one["parent"] == top]
    assert said["whole"] == f"all processes: {time_text(whole)} together"
    named = [f"{one['cat']}.{one['name']}: {time_text(one['total_ns'])}" for one in kids]
    assert said["child"].startswith(named[0])
    assert f"1 of {len(kids)} here" in said["child"]
    assert said["sibling"].startswith(named[1])
    assert said["zoomed"][0].startswith(named[0])
    assert said["zoomed"][0].endswith("shown whole")
    assert (said["zoomed"][1], said["back"]) == (False, True)
    assert said["searches"]
    # What lies inside of a match is not counted twice.
    called = [f"{one['cat']}.{one['name']}" if one["cat"] else "" for one in flame]
    matches = [at for at, name in enumerate(called) if "e" in name]
    assert any(flame[at]["parent"] in matches for at in matches)
    time = sum(flame[at]["total_ns"] for at in matches if flame[at]["parent"] not in matches)
    share = f"{100 * time / whole:.0f} % of all processes: {time_text(time)}"
    assert said["found"].startswith(share)
    # The keyboard was at the greatest of them.
    _, second, *_ = sorted(matches, key=lambda at: -flame[at]["total_ns"])
    assert said["match"].startswith(f"{called[second]}: ")
    assert said["missing"] == "nothing in all processes matches"
    assert said["emptied"] == ["", ""]
    assert said["clicked"].startswith(named[0])
    words, heard, marks = said["plot"]
    assert (heard, marks) == (words.replace("\n", ", "), 1)
    assert said["last"] != words
    assert said["left"] == [None, 0]
    assert (said["finger"], said["away"]) == (words, None)
    assert said["cell"] == "model.layers.1\niteration 1\ncur_amax: 0.2"
    assert said["maps"] == [[True, False], [False, True]]


def test_a_hostile_run_has_a_page_of_some_size_with_its_losses(pages: dict[str, Path]) -> None:
    text = pages["evil"].read_text("utf-8")
    assert len(text) < MOST_BYTES
    assert text.count("</script>") == 2
    assert "\x1b" not in text
    assert "\u202e" not in text
    page = Page(text)
    figures = page.figures
    assert page.of("img") == []
    assert "not JSON" not in json.dumps(figures)
    assert figures["summary"]["names_left_out"] + figures["summary"]["rows_left_out"] > 99_000
    assert figures["flame"]["paths_left_out"] > 90_000
    assert figures["flame"]["deepest"] == 1500
    assert figures["counters_left_out"] > 9_000
    said = "\n".join(figures["losses"])
    assert "no trace.pfw.gz" in said
    assert "41 lines without an event" in said
    numbers = re.findall(r'(?:points|d|x|y|width|height)="([^"]*)"', text)
    assert not [one for one in numbers if re.search("nan|inf", one)]


def test_what_is_lost_stands_above_all(pages: dict[str, Path]) -> None:
    text = pages["layers"].read_text("utf-8")
    assert text.index("LOST 7 events") < text.index("id=verdict") < text.index("<svg")
    # And what is not finite is drawn as such: three values of a counter, a row of a heat map.
    assert text.count('class="odd"') >= 3 + 10
    assert "3 values NaN or infinite" in text
    assert '<path fill="var(--odd)"' in text
    whole = pages["starved"].read_text("utf-8")
    assert whole.index("Nothing was lost") < whole.index("id=verdict")


def test_a_run_without_spans_has_no_picture_of_them(tmp_path: Path) -> None:
    counters = TraceLines()
    counters.counter("loss", 0, train=1.0)
    counters.write(tmp_path / "t-host-1.pfw")
    assert invoke("report", tmp_path, "-o", tmp_path / "report.html").status == 0
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "There are no finished spans." in text
    assert "flame" not in Page(text).plots


def test_each_plot_is_a_file_of_its_own(pages: dict[str, Path], tmp_path: Path) -> None:
    traces = pages["layers"].with_suffix("")
    Run(traces).write_plots(tmp_path / "plots")
    found = sorted(path.stem for path in (tmp_path / "plots").iterdir())
    assert found == sorted(Page(pages["layers"].read_text("utf-8")).plots)
    assert {"parts", "epochs", "steps", "distribution", "slow-0", "flame", "loader"} <= set(found)
    assert {"tensor-0", f"layer-{LAYERS - 1}", "counter-0"} <= set(found)
    for path in (tmp_path / "plots").iterdir():
        root = ET.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        # Programs that are no browsers know no variables.
        assert "var(" not in path.read_text("utf-8")
    # Again, over its own.
    done = invoke("report", traces, "-o", tmp_path / "a.html", "--plots", tmp_path / "plots")
    assert done.status == 0
    assert len(list((tmp_path / "plots").iterdir())) == len(found)
    (tmp_path / "traces").mkdir()
    Run(hostile(tmp_path / "traces", 100)).write_plots(tmp_path / "evil")
    for path in (tmp_path / "evil").iterdir():
        ET.parse(path)
    assert not [path.name for path in (tmp_path / "evil").iterdir() if EVIL[:5] in path.name]


def test_only_a_report_is_replaced(pages: dict[str, Path], tmp_path: Path) -> None:
    traces = pages["none"].with_suffix("")
    page = tmp_path / "report.html"
    for _ in range(2):
        assert invoke("report", traces, "-o", page).status == 0
        # One that is half there is one of ours, too.
        os.truncate(page, len(page.read_bytes()) // 2)
    own = tmp_path / "thesis.html"
    own.write_text("<p>years of work")
    (tmp_path / "link.html").symlink_to(own)
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "flame.svg").write_text("<svg/>")
    done = invoke("report", traces, "-o", page, "--plots", tmp_path / "plots")
    assert (done.status, "flame.svg: is no report" in done.err) == (2, True)
    # What else is in the way is told before anything is read.
    for words, part in (
        (["-o", own], "is no report of ours"),
        (["-o", own, "--json"], "is no report of ours"),
        (["-o", tmp_path / "link.html"], "is no report of ours"),
        (["-o", tmp_path], "is a directory"),
        (["-o", tmp_path / "missing" / "page.html"], "no such directory"),
        (["-o", page, "--plots", own], "cannot be made"),
    ):
        done = invoke("report", tmp_path / "no traces", *words)
        assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert part in done.err
    assert own.read_text() == "<p>years of work"
    assert "no such file" in invoke("report", tmp_path / "no traces", "-o", own, "--force").err
    done = invoke("report", traces, "-o", own, "--force", "--plots", tmp_path / "plots")
    assert done.status == 0
    assert Page(own.read_text("utf-8")).figures["kind"] == "dftrace report"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("link.html", "plots", "report.html", "thesis.html"),
    ]


def test_no_force_replaces_a_trace_that_is_read(tmp_path: Path) -> None:
    trace, link = tmp_path / "t.pfw.gz", tmp_path / "link"
    small_trace().write(trace)
    link.symlink_to(tmp_path)
    before = trace.read_bytes()
    for paths, out in ((trace, trace), (tmp_path, trace), (trace, link / trace.name)):
        done = invoke("report", paths, "-o", out, "--force")
        assert (done.status, "is read for the report" in done.err) == (2, True)
    with pytest.raises(DftraceError, match="choose another place"):
        Run(trace).report(trace, force=True)
    assert trace.read_bytes() == before


def test_no_force_replaces_what_others_write_to(tmp_path: Path) -> None:
    traces, pipe, link = (tmp_path / name for name in ("t.pfw.gz", "pipe", "link"))
    small_trace().write(traces)
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        done = invoke("report", traces, "-o", path, "--force")
        assert (done.status, len(done.err.splitlines())) == (2, 1)
        assert "is left as it is" in done.err
        with pytest.raises(DftraceError, match="is left as it is"), new_file(path):
            pass
    assert pipe.is_fifo()
    assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to this user")
def test_a_directory_that_is_closed_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    done = invoke("report", tmp_path / "no traces", "-o", tmp_path / "closed" / "page.html")
    assert (done.status, done.out) == (2, "")
    assert "Permission denied" in done.err
