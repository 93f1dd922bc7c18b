"""README and docs: their code runs, and prints what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.documents import ROOT, run_document

from tightpipe import methods

pytestmark = pytest.mark.source_tree
NEEDS_TORCH = {"tutorial.md"}  # tests/torch runs it
PAGES = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in NEEDS_TORCH)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_document(page)


def test_the_front_page_opens_with_an_instance_and_its_result_and_is_short() -> None:
    page = (ROOT / "README.md").read_text()
    assert len(page.split()) <= 700
    places = [
        page.index(text)
        for text in ("pip install", "instance.json", "$ tightpipe solve", "bound  ", "make compare")
    ]
    assert places == sorted(places)
    assert page[: places[-2]].count("\n") < 25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nraise KeyError('a')\n```\n", "a"),
        ("```sh\ntightpipe solve none.json --method list\n```\n", "no such file"),
        ("```console\n$ tightpipe --version\ntightpipe, version 0\n```\n", "not\ntightpipe, version 0"),
        ("```sh\ncurl localhost\n```\n", "no command of tightpipe"),
        ("```sh\nmake coffee\n```\n", "no make coffee"),
    ],
)
def test_a_page_that_is_wrong_fails(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(Exception, match=message):
        run_document(page)


@pytest.mark.parametrize("page", sorted((ROOT / "docs/research").glob("*.md")), ids=lambda page: page.name)
def test_the_newest_entry_of_the_research_log_stands_first(page: Path) -> None:
    days = re.findall(r"^## (\d{4}-\d\d-\d\d): ", page.read_text(), flags=re.M)
    assert days == sorted(days, reverse=True)
    assert days or page.name == "index.md"


@pytest.mark.parametrize("method", methods())
def test_every_method_is_explained(method: str) -> None:
    assert f"`{method}`" in (ROOT / "docs/methods.md").read_text()
