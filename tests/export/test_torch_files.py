"""Files that PyTorch 2.13 writes of its own schedules, in tests/data/torch: each is read as PyTorch runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightpipe import InputError, Instance, OpKind, Order
from tightpipe.export import EXPORTS, import_order
from tightpipe.heuristics import HEURISTICS

FILES = Path(__file__).parents[1] / "data/torch"
TORCH = EXPORTS["torch-csv"]


def problem(placement: str, devices: int) -> Instance:
    return Instance.uniform(
        devices=devices, microbatches=4, forward=3, backward=4, weight=2, comm=1, placement=placement
    )


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_a_file_with_cells_that_reduce_gradients_has_the_order_of_the_heuristic(name: str) -> None:
    path = FILES / f"{name}.csv"
    assert path.read_text().count("REDUCE_GRAD") == 3
    order = import_order(path, "torch-csv")
    assert order == HEURISTICS[name].make(problem("linear", 3))


@pytest.mark.parametrize("cell", ["0UNSHARD", "1RESHARD", "0REDUCE_GRAD", "12REDUCE_GRAD"])
def test_a_cell_that_computes_nothing_is_left_out_wherever_it_stands(cell: str) -> None:
    plain = "0F0,0I0,0W0\n1F0,1I0,1W0\n"
    for text in (
        f"{cell},{plain}",
        plain.replace("0I0", f"{cell},0I0"),
        plain.replace("W0\n", f"W0, {cell} \n"),
    ):
        assert TORCH.read(text) == TORCH.read(plain)


@pytest.mark.parametrize(
    "cell",
    [
        "REDUCE_GRAD",
        "0REDUCE_GRADS",
        "0REDUCE_GRAD0",
        "0UNSHARD1",
        "0SEND_F",
        "0SEND_W0",
        "x0RESHARD",
        "0GATHER",
    ],
)
def test_a_cell_that_pytorch_does_not_have_is_refused(cell: str) -> None:
    with pytest.raises(InputError, match=rf"row 0 = '{cell}': a cell is <stage><F|I|B|W><microbatch>"):
        TORCH.read(f"0F0,{cell},0B0\n")


def test_a_rank_that_only_reduces_gradients_has_no_operations() -> None:
    with pytest.raises(InputError, match="row 1 = '1REDUCE_GRAD': has no operations"):
        TORCH.read("0F0,0B0\n1REDUCE_GRAD\n")


@pytest.mark.parametrize(
    "text",
    [
        "0F0,0F1,0B0,0B1\n",  # as it should be
        "0F1,0B1\n",  # both without 0: neither the file of 1F1B nor a valid order
        "0F1,0F2,0B0\n",  # not as many backwards
        "0F1,0B0,0F3,0B2\n",  # a gap
    ],
)
def test_only_forwards_that_are_all_one_ahead_of_the_backwards_are_renumbered(text: str) -> None:
    numbers = {(int(stage), int(m)) for kind, stage, m in TORCH.read(text).operations if kind == OpKind.F}
    assert numbers == {(int(cell[0]), int(cell[2])) for cell in text.strip().split(",") if cell[1] == "F"}


def test_the_last_stage_of_1f1b_is_numbered_as_pytorch_runs_it() -> None:
    assert TORCH.read("0F1,0B0,0F2,0B1\n") == Order.parse("F0.0 BW0.0 F0.1 BW0.1")
