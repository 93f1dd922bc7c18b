"""The folder of the library: one folder per instance, with its record, its schedule and its certificate.

The file name of a schedule contains its cost, and the file name of a certificate its bound. `Library.put`
writes a better file beside the old one, then the record that refers to the better file, and then removes the
old file. So a record always has its files, even if the process ends in between. A lock keeps two processes
from writing at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from ..core.errors import InputError
from ..core.files import check_writable, write_text
from ..core.instance import Instance
from ..core.instance_file import read_json
from .record import Record, record_from_dict

_RECORD = "record.json"
_CHECKOUT = Path(__file__).resolve().parents[3]


def default_library() -> Path:
    """Return the folder ``library`` in the repository with this code, or else in the current folder."""
    ours = _CHECKOUT / "library"
    return ours if ours.is_dir() else Path("library")


class Library:
    """The records of a folder, and the files beside them.

    Parameters
    ----------
    root
        The folder. It has a folder for each family (a named group of instances), and in this a folder for
        each instance.

    Raises
    ------
    InputError
        If there is no such folder.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise InputError("there is no library: no such folder", source=str(root))

    def records(self) -> list[Record]:
        """Return all records, sorted by family, number of devices, number of microbatches and name.

        Raises
        ------
        InputError
            If a record cannot be read; the message names its file, key and value, and what is right.
        """
        found = [_load(path) for path in self._paths()]
        return sorted(found, key=lambda r: (r.family, r.instance.devices, r.instance.microbatches, r.id))

    def _paths(self) -> Iterator[Path]:
        return self.root.glob(f"*/*/{_RECORD}")

    def record(self, id: str) -> Record:
        """Return the record of an instance by its name.

        Raises
        ------
        InputError
            If there is no instance of this name.
        """
        for path in self._paths():
            if path.parent.name == id:
                return _load(path)
        raise InputError("the library has no instance of this name", key="id", value=id)

    def find(self, instance: Instance) -> Record | None:
        """Return the record whose instance equals `instance`; None if the library does not have it."""
        return next((record for record in self.records() if record.instance == instance), None)

    def folder(self, record: Record) -> Path:
        """Return the folder of an instance."""
        return self.root / record.family / record.id

    def record_path(self, record: Record) -> Path:
        """Return the path of a record's file."""
        return self.folder(record) / _RECORD

    def schedule_path(self, record: Record) -> Path | None:
        """Return the path of the cheapest schedule; None if no schedule is known."""
        return None if record.cost is None else self.folder(record) / f"schedule-{record.cost.value}.json.gz"

    def proof_path(self, record: Record) -> Path | None:
        """Return the path of the certificate of the bound; None if the bound has no certificate."""
        return self.folder(record) / f"proof-{record.bound.value}.json.gz" if record.certified else None

    def files(self, record: Record) -> list[Path]:
        """Return the path of the record, and the paths of its schedule and certificate if it has them."""
        paths = (self.record_path(record), self.schedule_path(record), self.proof_path(record))
        return [path for path in paths if path is not None]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the library: wait for other processes, and keep them out until the `with` block ends.

        Raises
        ------
        InputError
            If the folder is read-only.
        """
        path = self.root / ".lock"
        check_writable(path)
        with FileLock(path):
            yield

    def put(self, record: Record, *, schedule: Any = None, proof: Any = None) -> None:
        """Write a record with a new schedule or certificate, and remove what it replaces.

        `schedule` and `proof` are the contents of the new files; None keeps the file that is there. All files
        of the instance's folder that do not belong to the new record are removed.

        Raises
        ------
        InputError
            If a file cannot be written; the old record is then unchanged.
        """
        self.folder(record).mkdir(parents=True, exist_ok=True)
        for path, content in ((self.schedule_path(record), schedule), (self.proof_path(record), proof)):
            if content is not None and path is not None:
                write_text(path, json.dumps(content, separators=(",", ":")) + "\n")
        write_text(self.record_path(record), record.text())
        for path in set(self.folder(record).iterdir()) - set(self.files(record)):
            path.unlink()


def _load(path: Path) -> Record:
    try:
        record = record_from_dict(read_json(path))
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None
    named = f"{record.family}/{record.id}"
    if path.parent.parts[-2:] != (record.family, record.id):
        rule = f"must be those of the folder {'/'.join(path.parent.parts[-2:])}"
        raise InputError(rule, key="family/id", value=named, source=str(path))
    return record
