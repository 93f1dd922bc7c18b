"""The placements as tables."""

import pytest

from tightpipe import InputError, Placement


@pytest.mark.parametrize(
    ("name", "devices", "chunks", "routes"),
    [
        ("linear", 4, None, ((0, 1, 2, 3),)),
        ("linear", 2, 2, ((0, 0, 1, 1),)),
        ("v", 4, None, ((0, 1, 2, 3, 3, 2, 1, 0),)),
        ("v", 1, None, ((0, 0),)),
        ("loop", 2, None, ((0, 1, 0, 1),)),
        ("loop", 2, 3, ((0, 1, 0, 1, 0, 1),)),
        ("wave", 2, None, ((0, 1, 1, 0, 0, 1, 1, 0),)),
        ("wave", 2, 2, ((0, 1, 1, 0),)),
        ("bidirectional", 4, None, ((0, 1, 2, 3), (3, 2, 1, 0))),
    ],
)
def test_routes(name: str, devices: int, chunks: int | None, routes: tuple[tuple[int, ...], ...]) -> None:
    placement = Placement(name, devices, chunks)
    assert placement.routes == routes
    assert placement.stages == len(routes[0])


def test_stages_of_a_device() -> None:
    assert Placement("v", 4).stages_on(1) == (1, 6)
    assert Placement("loop", 4, 3).stages_on(1) == (1, 5, 9)
    assert Placement("bidirectional", 4).stages_on(1) == (1, 2)


@pytest.mark.parametrize(
    ("name", "devices", "chunks"), [("v", 4, 3), ("wave", 4, 3), ("bidirectional", 3, None), ("x", 4, None)]
)
def test_misfits_are_refused(name: str, devices: int, chunks: int | None) -> None:
    with pytest.raises(InputError, match="placement"):
        Placement(name, devices, chunks)
