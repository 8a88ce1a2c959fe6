"""The documents as a site: it is built, its links lead somewhere, its search finds the page of each question."""

from __future__ import annotations

import importlib.util
import subprocess
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from conftest import SCRIPT_LIMIT_S

from docs.pages import DOCS, ROOT, between, plain, table

PROGRAM = DOCS / "site" / "build.py"
PYTHON = ROOT / ".venv-docs" / "bin" / "python"


def loaded() -> ModuleType:
    """The program that builds the site, as a module."""
    spec = importlib.util.spec_from_file_location("build_site", PROGRAM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = loaded()


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built anew."""
    if not PYTHON.exists():
        pytest.skip("make .venv-docs/made installs what builds the site")
    made = subprocess.run(
        [PYTHON, PROGRAM], capture_output=True, text=True, timeout=SCRIPT_LIMIT_S, check=False
    )
    # A warning, a link to nowhere and a question that does not find its page are a line each.
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    return Path(BUILD.SITE)


def test_at_least_thirty_questions_find_their_pages(site: Path) -> None:
    questions = BUILD.questions()
    assert len(questions) >= 30
    assert len(set(questions.values())) >= 25
    assert all((site / page / "index.html").is_file() for page in questions.values())


def test_a_question_that_does_not_find_its_page_is_told(site: Path) -> None:
    (told,) = BUILD.unanswered(site, {"Which rank is late?": "questions/nan"})
    assert "does not find questions/nan, but ['guide/which-rank'" in told


def test_each_public_name_is_on_one_page(site: Path) -> None:
    pages = {
        path.parent.name: BUILD.Page(path.read_text(encoding="utf-8")).anchors
        for path in site.glob("reference/*/index.html")
    }
    packages = [plain(name) for name, _ in table(between(DOCS / "promises.md", "packages"))]
    assert sorted(pages) == sorted(packages)
    # dftracer's own names have their table on the page for those who come from there.
    packages.remove("dftrace_ai.compat.dftracer")
    names = [(each, name) for each in packages for name in import_module(each).__all__]
    often = Counter(name for _, name in names)
    homes: dict[object, list[str]] = {}
    for package, name in names:
        # One that two packages give is one where it is the same thing in both.
        thing = getattr(import_module(package), name) if often[name] > 1 else (package, name)
        called = f"{package}.{name}"
        found = homes.setdefault(id(thing) if often[name] > 1 else called, [])
        if called in pages:  # a package that can be called
            found.append(called)
        found += [page for page, anchors in pages.items() if called in anchors]
    wrong = {home: pages for home, pages in homes.items() if len(pages) != 1}
    assert wrong == {"dftrace_ai.__version__": []}


def test_links_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(
        '<h1 id="top"><a href="../b.html#there">b</a><a href="#top">a</a><a href="..">up</a>'
        '<a href="../../out.html">out</a><img src="none.svg"><a href="https://x.org/">x</a>'
    )
    (tmp_path / "b.html").write_text('<p id="here"><a href="a/#top">a</a><a href="a/">a</a>')
    assert list(BUILD.broken_links(tmp_path)) == [
        "a/index.html: ../b.html#there names nothing on that page",
        "a/index.html: .. leads nowhere",
        "a/index.html: ../../out.html leads nowhere",
        "a/index.html: none.svg leads nowhere",
    ]
