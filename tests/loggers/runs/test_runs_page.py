"""The page: what it shows, in a browser too, and that names from others do nothing on it."""

from __future__ import annotations

import base64
import io
import math
import random
import re
import shutil
import statistics
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from html_pages import EVIL, Page
from loggers.local_lines import entry
from loggers.runs.made_logs import Log
from safety.commands import invoke

from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.runs.log_files import run_folders
from dftrace_ai.loggers.runs.page import (
    COLOURS,
    MOST_DOTS,
    Dot,
    Line,
    RunsOnPage,
    bars,
    lines,
    page_of,
)

CHROMIUM = next(
    (b for n in ("chromium", "chromium-browser", "google-chrome") if (b := shutil.which(n))), None
)
LIMIT_S = 300


def made(root: Path, words: list[object] | None = None) -> str:
    path = root.parent / f"{root.name}.html"
    done = invoke("runs", root, "--to", "html", "--out", path, "--force", *(words or []))
    assert (done.out, done.status, done.err) == ("", 0, "")
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of a training that logs everything that is shown."""
    np = pytest.importorskip("numpy")
    folder = tmp_path_factory.mktemp("page") / "runs"
    for number in range(2):
        settings = entry(
            folder, "metric", "hist", "image", "video", "hparams", run_name=f"r{number}"
        )
        settings["config"]["tracked_variables"] = {
            "hist": ["w"],
            "image": ["im"],
            "video": ["clip"],
        }
        with make_loggers({"local": settings}) as loggers:
            loggers.log_hyperparams({"lr": 10.0**-number, "depth": 3})
            for step in range(40):
                loggers.log_iter(
                    {"loss": 1 / (step + 1) + number, "odd": float("nan") if step == 20 else step}
                )
            loggers.log_iter(
                {
                    "w": np.arange(100.0),
                    "im": np.full((8, 8, 3), 200, np.uint8),
                    "clip": np.zeros((3, 8, 8, 3), np.uint8),
                }
            )
            loggers.log_text("note", "a < b")
            loggers.log_epoch()
    return folder


def test_it_shows_what_was_logged(root: Path) -> None:
    text = made(root)
    page = Page(text)
    names = {one["aria-label"] for one in page.of("svg", "plot")}
    assert {"loss", "odd", "epoch/loss/mean"} <= names
    # A line for each run; one with a value that is not finite has a gap, and a cross above it.
    assert len(page.of("polyline", "line")) == 2 * len(names) + 2
    assert len(page.of("path", "cross")) == 2
    assert [one["aria-label"] for one in page.of("svg", "bars")] == [*["epoch/w"] * 2, *["w"] * 2]
    sources = [one["src"] for one in page.of("img")]
    assert sorted(source.partition(",")[0] for source in sources) == [
        *["data:image/gif;base64"] * 2,
        *["data:image/png;base64"] * 2,
    ]
    pictures = {path.read_bytes() for path in root.rglob("*.png")}
    assert {base64.b64decode(s.partition(",")[2]) for s in sources if "png" in s} == pictures
    for said in ("default/r0", "default/r1", "finished", "lr", "0.1", "1 param alike in all"):
        assert said in text
    assert "a &lt; b" not in text  # texts are named, no more
    # Nothing is fetched, and one script of ours runs.
    assert len(page.of("script")) == 1
    assert "script-src 'sha256-" in text
    assert not page.of("link")
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text


def test_the_chosen_runs_and_metrics_alone_are_on_it(root: Path) -> None:
    page = Page(made(root, ["--name", "r1", "--metric", "l*"]))
    assert [one["aria-label"] for one in page.of("svg", "plot")] == ["loss"]
    assert len(page.of("polyline", "line")) == 1
    assert "default/r0" not in page.texts
    assert len(page.of("svg", "bars")) == 2


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")
def test_a_browser_draws_the_plots(root: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    made(root, ["--metric", "loss"])
    picture = tmp_path / "shot.png"
    opened_in_browser(root.parent / "runs.html", tmp_path, f"--screenshot={picture}")
    shot = image.open(io.BytesIO(picture.read_bytes())).convert("RGB")
    seen = dict((colour, count) for count, colour in shot.getcolors(1 << 24))
    for number, colour in enumerate(COLOURS[:2]):
        rgb = tuple(bytes.fromhex(colour[1:]))
        # The square beside the name is no larger than that; the rest is the line.
        assert seen.get(rgb, 0) > 300, (number, seen.get(rgb))
    # The picture that was logged.
    assert seen.get((200, 200, 200), 0) > 1000


def opened_in_browser(path: Path, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"),
            *(
                f"--user-data-dir={folder / 'profile'}",
                "--window-size=1300,1600",
                "--hide-scrollbars",
            ),
            *words,
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")
def test_a_browser_obeys_no_name(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    (tmp_path / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\n secret" + bytes(100))
    for number in range(2):
        log = Log(root, f"p/r{number}", name=EVIL, project=EVIL, group=EVIL, tags=[EVIL])
        log.add("p", v={EVIL: EVIL, f"{EVIL}{number}": EVIL, "same": EVIL})
        log.metrics(0, **{EVIL: 1.0}).metrics(1, **{EVIL: 2.0}).metrics(1 << 62, **{EVIL: -1e308})
        log.metrics(-(1 << 62), **{EVIL: 1e308})
        place = {"s": 0, "a": "i", "name": EVIL}
        for edges, counts in (
            *(([0, 1], [5]), ([0, EVIL], [5]), ([0, 1], [EVIL]), ([0], []), (EVIL, EVIL)),
            *(([0, 1, 2], [1]), ([1, 0], [3]), ([0, 1], [-3]), ([-1e308, 1e308], [1 << 60])),
        ):
            log.add("h", **place, edges=edges, counts=counts)
        (log.folder / "odd.png").write_text(EVIL)
        (log.folder / "vast.png").write_bytes(b"\x89PNG\r\n\x1a\n0000IHDR" + b"\xff" * 20)
        for file in ("../../secret.png", "../../../secret.png", EVIL, "odd.png", "vast.png", ""):
            log.add("f", **place, kind="image", file=file, caption=EVIL)
        log.add("x", **place, text=EVIL).add("!", **place, title=EVIL, text=EVIL, level=EVIL)
        log.end()
    text = made(root)
    assert "secret" not in text.replace("secret.png", "")
    dom = opened_in_browser(root.parent / "runs.html", tmp_path, "--dump-dom")
    page = Page(dom)
    assert len(page.of("script")) == 1
    assert not page.of("img")
    assert all(not key.startswith("on") for _, found in page.elements for key in found)
    assert len(page.of("svg", "plot")) == 1
    assert "<title>owned</title>" not in dom
    assert "nan" not in " ".join(one["points"] for one in page.of("polyline"))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_many_steps_are_put_together_and_extremes_are_kept(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for step in range(3 * MOST_DOTS):
        log.metrics(step, x=float(step % 2 * 2 - 1) if step != 700 else 50.0)
    folders, _ = run_folders(tmp_path)
    page = Page(page_of("x", RunsOnPage(folders)))
    (line,) = page.of("polyline", "line")
    assert MOST_DOTS / 2 < len(line["points"].split()) <= MOST_DOTS
    (band,) = page.of("path", "band")
    # The greatest value lies at the top of the plot.
    assert min(float(y) for y in re.findall(r" ([\d.]+)", band["d"])) == 10.0


@pytest.mark.parametrize("count", [400, 5000])
def test_dots_are_what_the_values_of_their_steps_come_to(tmp_path: Path, count: int) -> None:
    chance = random.Random(count)
    logged: list[tuple[int, float]] = []
    for rank in range(3):
        log = Log(tmp_path, rank=rank)
        for _ in range(count):
            step = chance.randrange(-200, 3 * count)
            value = chance.choice([chance.gauss(0, 1), chance.gauss(0, 1), 1e308, float("nan")])
            logged.append((step, value))
            log.metrics(step, x="NaN" if value != value else value)
    folders, _ = run_folders(tmp_path)
    (((_, name), by_run),) = RunsOnPage(folders).plots
    dots = by_run["p/r"].dots()
    assert name == "x"
    places: dict[int, list[tuple[int, float]]] = {}
    for shift in range(20):
        places = {}
        for step, value in logged:
            places.setdefault(step >> shift, []).append((step, value))
        if len(places) <= MOST_DOTS:
            break
    assert len(dots) == len(places)
    for dot, (_, found) in zip(dots, sorted(places.items()), strict=True):
        finite = [value for _, value in found if math.isfinite(value)]
        assert dot.x == pytest.approx(statistics.fmean(step for step, _ in found))
        assert dot.non_finite == len(found) - len(finite)
        if finite:
            assert (dot.low, dot.high) == (min(finite), max(finite))
            assert dot.y == pytest.approx(statistics.fmean(value / 1024 for value in finite) * 1024)
        else:
            assert (dot.low, dot.y, dot.high) == (None, None, None)


def test_of_many_histograms_and_plots_some_are_shown(tmp_path: Path) -> None:
    log = Log(tmp_path / "runs")
    for step in range(100):
        log.add("h", s=step, a="i", name="w", edges=[0, 1], counts=[step])
        log.add("h", s=step, a="i", name="odd", edges=[0], counts=[step])
    for axis in "ei":
        log.metrics(0, axis, **{f"{axis}{number}": 1.0 for number in range(200)})
    text = made(tmp_path / "runs")
    steps = [int(step) for step in re.findall(r"<small>p/r, step (\d+)<", text)]
    assert (len(steps), steps[0], steps[-1]) == (4, 0, 99)
    assert all(20 <= after - before <= 50 for before, after in pairwise(steps))
    names = [one["aria-label"] for one in Page(text).of("svg", "plot")]
    # Those over iterations are first.
    assert names == sorted(f"i{n}" for n in range(200)) + sorted(f"e{n}" for n in range(200))[:100]
    assert "100 plots more; --metric chooses" in text


def test_all_of_many_runs_are_on_it_and_can_be_sorted(tmp_path: Path) -> None:
    many, steps = 190, 300
    for number in range(many):
        log = Log(tmp_path, f"p/r{number:03}")
        log.add(
            "p",
            v={"lr": 0.1 / (number + 1), "depth": 3, "seed": number, "note": "a" * (number % 3)},
        )
        for step in range(steps if number < 3 else 2):
            log.metrics(step, **{f"m{at:03}": float(number + step) for at in range(90)})
        log.end()
    folders, _ = run_folders(tmp_path)
    found = RunsOnPage(folders)
    text = page_of("x", found)
    assert "190 runs" in text
    assert "more are not shown" not in text
    rows = dict.fromkeys(("statuses", "beside"), 0)
    for name in rows:
        table = text[text.index(f'<table id="{name}" class=sorts>') :].partition("</table>")[0]
        rows[name] = table.count("<tr>") - 1
        assert "p/r000" in table
        assert "p/r189" in table
    assert rows == {"statuses": many, "beside": many}
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", table)
    # What differs, and as many of the metrics as there is room for.
    assert heads == ["run", "lr", "note", "seed", *(f"m{at:03}" for at in range(24))]
    assert "66 metrics more; --metric chooses" in text
    assert 'data-value="0.05">0.05' in table
    # More runs have fewer plots, and lines of fewer points: it stays as large.
    assert found.most_plots * many <= 50 * 300
    assert f"{90 - found.most_plots} plots more" in text
    plots = Page(text).of("svg", "plot")
    assert len(plots) == found.most_plots
    first = text[text.index('<svg class="plot"') :].partition("</svg>")[0]
    lengths = [len(one["points"].split()) for one in Page(first).of("polyline", "line")]
    assert len(lengths) == many
    assert 40 <= max(lengths) <= 50 * MOST_DOTS / many


def test_a_line_goes_through_its_dots() -> None:
    dots = [Dot(x, y, y, y, 0) for x, y in ((0, 0.0), (5, 10.0), (10, 5.0))]
    (line,) = Page(lines("x", [Line(0, "r", dots)])).of("polyline", "line")
    (x0, y0), (x1, y1), (x2, y2) = (map(float, dot.split(",")) for dot in line["points"].split())
    assert (x1 - x0, y0 - y2) == (pytest.approx(x2 - x1), pytest.approx(y2 - y1))
    # A constant, one value alone, and none at all can be drawn, too.
    for some in ([(0, 1.0), (1, 1.0)], [(3, 0.0)], [(0, 1e308), (1, -1e308)], [(0, 5e-324)], []):
        text = lines("x", [Line(0, "r", [Dot(x, y, y, y, 0) for x, y in some])])
        assert "nan" not in text
        assert "inf" not in text
    text = bars("w", [0.0, 1.0, 3.0], [2, 4])
    one, another = Page(text).of("rect", "bar")
    assert float(another["width"]) == pytest.approx(2 * float(one["width"]), abs=0.2)
    assert float(another["height"]) == pytest.approx(2 * float(one["height"]), abs=0.2)
