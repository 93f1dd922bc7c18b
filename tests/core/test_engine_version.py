"""The name of the engine: the version, the last commit of its sources, and whether they differ from it."""

from __future__ import annotations

import ast
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tightpipe.core.engine_version import SAME_CODE, SOURCES, engine_version, name_engine

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, file: str, text: str) -> str:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "HEAD")[:7]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.nbi\n")
    for folder in SOURCES:
        commit(tmp_path, f"{folder}/a.py", folder)
    return tmp_path


def test_the_name_is_that_of_the_last_commit_of_a_source(checkout: Path) -> None:
    last = git(checkout, "rev-parse", "HEAD")[:7]
    assert name_engine("1.2.3", checkout) == f"1.2.3+{last}"
    commit(checkout, "docs/page.md", "a page")
    assert name_engine("1.2.3", checkout) == f"1.2.3+{last}"


def test_a_commit_that_says_so_leaves_the_name(checkout: Path) -> None:
    clean = name_engine("1", checkout)
    commit(checkout, "solver/a.py", f"# better said\n\n{SAME_CODE}\n")
    assert name_engine("1", checkout) == clean
    commit(checkout, "src/tightpipe/core/engine_version.py", "names the engine")
    assert name_engine("1", checkout) == clean
    new = commit(checkout, "solver/a.py", f"# not said on a line of its own: {SAME_CODE}")
    assert name_engine("1", checkout) == f"1+{new}"


@pytest.mark.parametrize("folder", SOURCES)
def test_every_source_counts(folder: str, checkout: Path) -> None:
    new = commit(checkout, f"{folder}/b.py", "new")
    assert name_engine("1.2.3", checkout) == f"1.2.3+{new}"
    (checkout / folder / "b.py").write_text("edited")
    assert name_engine("1.2.3", checkout) == f"1.2.3+{new}.modified"


def test_a_new_source_is_a_change_and_other_new_files_are_none(checkout: Path) -> None:
    clean = name_engine("1", checkout)
    (checkout / "notes.txt").write_text("mine")
    (checkout / "solver/a.nbi").write_text("a compiled loop, which git ignores")
    assert name_engine("1", checkout) == clean
    (checkout / "solver/idea.py").write_text("new")
    assert name_engine("1", checkout) == f"{clean}.modified"


def test_without_a_checkout_the_name_is_the_version(tmp_path: Path) -> None:
    assert name_engine("1.2.3", tmp_path) == "1.2.3"
    git(tmp_path, "init", "-q")  # as that of a project which has a copy of the sources
    inner = tmp_path / "site-packages"
    commit(tmp_path, "site-packages/solver/a.py", "a copy")
    assert name_engine("1.2.3", inner) == "1.2.3"


def test_without_git_or_commits_the_name_is_the_version(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    git(empty, "init", "-q")
    assert name_engine("1.2.3", empty) == "1.2.3"
    monkeypatch.setenv("PATH", str(empty))
    assert name_engine("1.2.3", checkout) == "1.2.3"


class WithoutTexts(ast.NodeTransformer):
    """Removes every statement that is only a text: docstrings, and the texts below attributes."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def code(revision: str, file: str) -> str:
    """The syntax tree of a Python file without texts, and any other file as it is."""
    content = git(ROOT, "show", f"{revision}:{file}")
    return ast.dump(WithoutTexts().visit(ast.parse(content))) if file.endswith(".py") else content


def test_code_is_compared_without_texts_and_with_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "a": 'def f():\n    """Text."""\n    return "text"',
        "b": "def f():  # comment\n    return 'text'",
    }
    texts["c"] = 'def f():\n    """Text."""\n    return "other"'
    monkeypatch.setitem(globals(), "git", lambda _root, _show, name: texts[name.partition(":")[0]])
    assert code("a", "f.py") == code("b", "f.py") != code("c", "f.py")
    assert code("a", "f.toml") != code("b", "f.toml")


@pytest.mark.source_tree
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the sources lie in no repository")
def test_commits_that_say_so_do_not_change_the_code() -> None:
    said = git(ROOT, "log", "--format=%H", f"--grep=^{SAME_CODE}$", "--", *SOURCES).split()
    for revision in said:
        changed = git(ROOT, "diff", "--no-renames", "--name-status", f"{revision}^", revision, "--", *SOURCES)
        for status, file in (line.split("\t") for line in changed.splitlines()):
            if not file.endswith("core/engine_version.py"):
                assert status == "M", f"{revision} adds or removes {file}"
                assert code(f"{revision}^", file) == code(revision, file), f"{revision} changes {file}"


@pytest.mark.source_tree
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the sources lie in no repository")
def test_this_process_names_the_checkout_that_it_runs_from() -> None:
    assert all((ROOT / folder).is_dir() for folder in SOURCES)
    assert engine_version() == name_engine(version("tightpipe"), ROOT)
    assert engine_version().startswith(f"{version('tightpipe')}+")
