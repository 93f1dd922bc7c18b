"""Releases: links and URLs come from the environment, into a copy, and only where version, tag and log agree."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tools/release_copy.py"
WHERE = {"GITHUB_REPOSITORY": "them/there", "GITHUB_REF_NAME": "v1.2.0", "GITHUB_SERVER_URL": "https://host"}
README = """\
[site](https://elsewhere.org/a), [below](#more), [guide](docs/guide.md#start), ![a chart](chart.png)
"""
pytestmark = pytest.mark.source_tree


@pytest.fixture
def release() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("release_copy", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["release_copy"] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["release_copy"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    for name in ("docs/guide.md", "chart.png"):
        (tmp_path / name).touch()
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.0] - 2026-12-01\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1.2.0"\n')
    return tmp_path


def test_links_lead_to_the_tag_and_images_to_their_bytes(release: ModuleType, project: Path) -> None:
    release.fill_in(project, release.Host.from_environment(WHERE))
    assert (project / "README.md").read_text() == (
        "[site](https://elsewhere.org/a), [below](#more), "
        "[guide](https://host/them/there/blob/v1.2.0/docs/guide.md#start), "
        "![a chart](https://host/them/there/raw/v1.2.0/chart.png)\n"
    )
    urls = tomllib.loads((project / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Homepage"] == "https://host/them/there"
    assert urls["Changelog"] == "https://host/them/there/blob/v1.2.0/CHANGELOG.md"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("README.md", "[a](gone.md)", "README.md: gone.md: leads to no file"),
        ("CHANGELOG.md", "## [1.1.0]", r"CHANGELOG.md: has no heading ## \[1.2.0\]"),
        ("pyproject.toml", '[project]\nversion = "1.3.0"', "version 1.3.0, whose tag is v1.3.0"),
    ],
)
def test_what_does_not_agree_is_no_release(
    release: ModuleType, project: Path, file: str, text: str, message: str
) -> None:
    (project / file).write_text(text)
    with pytest.raises(release.ReleaseError, match=message):
        release.fill_in(project, release.Host.from_environment(WHERE))


def test_the_links_of_the_front_page_lead_to_files(release: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    linked = release.with_absolute_links(text, ROOT, release.Host.from_environment(WHERE))
    assert linked.count("https://host/them/there/raw/v1.2.0/") == text.count("![")


@pytest.mark.parametrize("missing", ["GITHUB_REPOSITORY", "GITHUB_REF_NAME"])
def test_outside_of_a_release_nothing_is_written(missing: str, tmp_path: Path) -> None:
    known = {name: value for name, value in WHERE.items() if name != missing}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "copy")], env=known, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"release_copy: {missing} is not set")
    assert not (tmp_path / "copy").exists()


def test_a_tag_of_another_version_leaves_no_folder(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (WHERE | {"GITHUB_REF_NAME": "v99.0"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(release, "copy_of_commit", lambda folder: (folder.mkdir(), copy_project(folder)))
    assert release.main([str(tmp_path / "copy")]) == 2
    assert "release_copy: GITHUB_REF_NAME = v99.0: pyproject.toml has version" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def copy_project(folder: Path) -> None:
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
