"""What a run keeps at its end: its trace, and a page on what was logged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from conftest import Traced
from html_pages import Page
from loggers.local_lines import Kept, entry

from dftrace_ai import ai
from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers import Logger, attached, make_loggers
from dftrace_ai.loggers.trackers.base import BaseLogint


class Keeping(BaseLogint):
    """Has the bytes of every file it was given, by name."""

    name = "kept"
    own_process = False
    files: dict[str, list[bytes]] = {}

    def log_metrics(self, metrics, step):
        """Nothing is asked of these here."""

    def log_file(self, name, data, suffix, step):
        """Keep it."""
        self.files.setdefault(name, []).append(data)


class Asked(Keeping):
    """The same, to tell who has asked."""

    name = "kept_asked"
    files: dict[str, list[bytes]] = {}


@pytest.fixture(autouse=True)
def nothing_kept():
    Keeping.files.clear()
    Asked.files.clear()


def asking(folder: Path, *what: str) -> dict[str, dict[str, object]]:
    # On a busy machine another interpreter takes its time.
    return {"config": {**entry(folder)["config"], "attach": list(what), "limit_s": 240}}


def test_each_interface_keeps_what_it_was_asked_to_keep(traced: Traced, tmp_path: Path) -> None:
    """The page shows what was logged until the end, by whichever call, and how the run ended."""
    with traced(compression="gzip") as rec:
        with ai.compute.forward:
            pass
        loggers = make_loggers(
            {
                "local": asking(tmp_path, "trace"),
                "kept": entry(tmp_path),
                "kept_asked": asking(tmp_path, "report", "trace"),
            }
        )
        for step in range(100):
            loggers.log_iter({"loss": 1 / (step + 1)})
            loggers[0].log_metrics({"by one": float(step)}, step)
        loggers.log_epoch()
        loggers.end_log("failed")
        path = Path(rec.run.path)
    assert Keeping.files == {}
    assert sorted(Asked.files) == sorted([path.stem, "report", "trace-report"])
    (trace,), (page,) = Asked.files[path.stem], Asked.files["report"]
    (of_trace,) = Asked.files["trace-report"]
    assert b"compute.forward" in of_trace or b">forward<" in of_trace
    # It is made before the trace has its end, and read when it has.
    assert b"wrote this page" in of_trace
    assert b"closing line" not in of_trace
    assert b"not closed" not in of_trace
    assert b'"forward"' in gzip.decompress(trace)
    words = {text.strip() for text in Page(page.decode()).texts}
    assert {"failed", "loss", "by one", "epoch/loss/mean"} <= words
    kept = Kept(tmp_path)
    assert kept.status == "failed"
    (artifact,) = kept.of("a")
    assert artifact["name"] == path.name
    assert b'"forward"' in gzip.decompress(kept.file(artifact).read_bytes())


def test_a_report_of_the_trace_needs_no_entry_local(
    traced: Traced,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it cannot be made that is told, and everything else is kept."""
    with traced(perfetto=False):
        with make_loggers({"kept_asked": asking(tmp_path, "report")}):
            pass
        assert Asked.files == {}  # nothing was recorded
        with ai.compute.forward:
            pass
        with make_loggers({"kept_asked": asking(tmp_path, "report")}):
            pass
        assert list(Asked.files) == ["trace-report"]
        assert "report" not in caplog.text
        monkeypatch.setattr(attached, "REPORTING", ("dftrace_ai.analysis.closing", "nothing"))
        with make_loggers({"kept_asked": asking(tmp_path, "report", "trace")}):
            pass
        assert "the report of the trace could not be attached to the run" in caplog.text
        assert "has no attribute 'nothing'" in caplog.text
    assert len(Asked.files) == 2


def test_all_parts_of_a_trace_are_kept(traced: Traced, tmp_path: Path) -> None:
    with traced(compression="none", max_file_bytes=100_000) as rec:
        with make_loggers({"kept_asked": asking(tmp_path, "trace")}):
            for step in range(2000):
                with ai.compute.forward(step=step):
                    pass
        parts = {file.stem for file in Path(rec.run.path).parent.glob("*.pfw")}
    assert len(parts) > 2
    assert set(Asked.files) == parts
    assert {len(found) for found in Asked.files.values()} == {1}


def test_where_there_is_no_trace_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Logger({"local": asking(tmp_path, "trace", "report")}) as logger:
        logger.log_iter({"loss": 1.0})
    assert caplog.text == ""
    assert [line["name"] for line in Kept(tmp_path).of("a")] == ["report.html"]


def test_where_another_rank_makes_the_report_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    asked = asking(tmp_path, "report")
    asked["config"]["ranks"] = "all"
    with make_loggers({"local": entry(tmp_path), "kept_asked": asked}) as loggers:
        loggers.log_iter({"loss": 1.0})
    assert Asked.files == {}
    assert caplog.text == ""


def test_a_report_of_what_is_not_logged_is_refused(tmp_path: Path) -> None:
    for make in (make_loggers, Logger):
        with pytest.raises(ConfigError, match="add an entry local"):
            make({"kept_asked": asking(tmp_path, "report")})
