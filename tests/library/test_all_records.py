"""Everything in the library of this repository verifies; the default run has a sample of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightpipe.library import Library, check_record

pytestmark = pytest.mark.source_tree
FOLDER = Path(__file__).parents[2] / "library"
_NAMES = [record.id for record in Library(FOLDER).records()] if FOLDER.is_dir() else []


@pytest.mark.sampled(5)
@pytest.mark.parametrize("id", sorted(_NAMES))
def test_a_record_verifies(id: str) -> None:
    library = Library(FOLDER)
    assert check_record(library, library.record(id))
