"""README and docs: their code runs, and prints what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import ROOT, run_document

from tightpipe import methods

pytestmark = pytest.mark.source_tree
NEEDS_TORCH = {"tutorial.md"}  # tests/torch runs it
NO_CODE = {"research-log.md"}
PAGES = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in NEEDS_TORCH | NO_CODE)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_document(page)


def test_the_front_page_shows_what_its_example_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "README.md").read_text()
    (code,), (shown,) = (re.findall(rf"```{kind}\n(.*?)```", page, flags=re.S) for kind in ("python", "text"))
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    printed = capsys.readouterr().out
    known = [re.sub(r"^(seconds +).*", r"\1", text, flags=re.M) for text in (shown, printed)]
    assert known[0] == known[1]


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


@pytest.mark.parametrize("method", methods())
def test_every_method_is_explained(method: str) -> None:
    assert f"`{method}`" in (ROOT / "docs/methods.md").read_text()
