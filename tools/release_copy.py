"""Copy what is committed into a folder, with the links that only a release has.

The package index shows the README without the files beside it, so that relative links in it lead nowhere.
Addresses cannot stand in the repository, because it may be copied to any host. So only the copy gets them:
absolute links in the README, and the project's URLs in pyproject.toml. The host is read from the environment
variables that GitHub's workflows set:

    GITHUB_REPOSITORY=owner/name GITHUB_REF_NAME=v1.2.0 python tools/release_copy.py build/release

The exit status is 2, with one line on stderr and no new folder, where the argument is missing or names a
folder that exists, an environment variable is missing, the tag is not that of the version, the CHANGELOG has
no such version, or a link leads nowhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


class ReleaseError(Exception):
    """The error if a release cannot be made; the message names what is wrong and what would be right."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where the released files can be read.

    Parameters
    ----------
    repository
        URL of the repository, without a slash at its end.
    tag
        Name of the release's tag, e.g. ``v1.2.0``.
    """

    repository: str
    tag: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Host:
        """Return the host that is described by the environment variables of GitHub's workflows.

        Raises
        ------
        ReleaseError
            If the repository's name or the tag is missing.
        """
        for name in ("GITHUB_REPOSITORY", "GITHUB_REF_NAME"):
            if not environment.get(name):
                raise ReleaseError(f"{name} is not set; it must be {_MEANING[name]}")
        server = environment.get("GITHUB_SERVER_URL", "https://github.com")
        return cls(f"{server}/{environment['GITHUB_REPOSITORY']}", environment["GITHUB_REF_NAME"])

    def url(self, path: str, *, raw: bool = False) -> str:
        """Return the address of the page that shows a file or, with `raw`, of the file's bytes alone.

        `path` leads to the file from the root of the repository.
        """
        return f"{self.repository}/{'raw' if raw else 'blob'}/{self.tag}/{path}"

    @property
    def urls(self) -> dict[str, str]:
        """The project's URLs, by the labels that the package index knows."""
        return {
            "Homepage": self.repository,
            "Documentation": self.url("docs/index.md"),
            "Changelog": self.url("CHANGELOG.md"),
            "Issues": f"{self.repository}/issues",
        }


_MEANING = {
    "GITHUB_REPOSITORY": "the repository's name, as owner/name",
    "GITHUB_REF_NAME": "the release's tag, such as v1.2.0",
}


def with_absolute_links(text: str, folder: Path, host: Host) -> str:
    """Return a Markdown text in which each relative link is replaced by an address on the host.

    Links that are addresses already, and links within the text, stay as they are.

    Parameters
    ----------
    text
        The text of the README in the root of the repository.
    folder
        A copy of the repository, in which each link is to lead to a file.
    host
        Where the released files can be read.

    Raises
    ------
    ReleaseError
        If a relative link leads to no file or folder in `folder`.
    """

    def absolute(link: re.Match[str]) -> str:
        image, label, target = link.group("image", "text", "target")
        if re.match(r"[a-z]+:|#", target):
            return link.group()
        path, _, part = target.partition("#")
        if not (folder / path).exists():
            raise ReleaseError(f"README.md: {target}: leads to no file")
        return f"{image}[{label}]({host.url(path, raw=bool(image))}{part and f'#{part}'})"

    return _LINK.sub(absolute, text)


def check_version(folder: Path, tag: str) -> None:
    """Check that a tag belongs to the version of the project, and that the CHANGELOG has this version.

    Raises
    ------
    ReleaseError
        If the tag is not ``v`` and the version, or the CHANGELOG has no heading with the version.
    """
    version = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        raise ReleaseError(
            f"GITHUB_REF_NAME = {tag}: pyproject.toml has version {version}, whose tag is v{version}"
        )
    if f"\n## [{version}]" not in (folder / "CHANGELOG.md").read_text():
        raise ReleaseError(f"CHANGELOG.md: has no heading ## [{version}]")


def fill_in(folder: Path, host: Host) -> None:
    """Write the links and URLs of a release into a copy of the tree.

    Raises
    ------
    ReleaseError
        If the tag is not that of the version, the CHANGELOG has no such version, or a link leads nowhere.
    """
    check_version(folder, host.tag)
    readme, project = folder / "README.md", folder / "pyproject.toml"
    readme.write_text(with_absolute_links(readme.read_text(), folder, host))
    lines = "".join(f'{label} = "{url}"\n' for label, url in host.urls.items())
    project.write_text(f"{project.read_text()}\n[project.urls]\n{lines}")


def copy_of_commit(folder: Path) -> None:
    """Write the files of the last commit into a folder that is not there yet."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def main(arguments: list[str]) -> int:
    """Make the copy in the folder that the argument names; return the exit status."""
    if len(arguments) != 1 or Path(arguments[0]).exists():
        print("release_copy: give one folder, which must not exist yet", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    try:
        host = Host.from_environment(os.environ)
        copy_of_commit(folder)
        fill_in(folder, host)
    except ReleaseError as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"release_copy: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
