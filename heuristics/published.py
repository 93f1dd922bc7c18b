"""The published schedule families with a fixed order, and the automatic zero-bubble greedy."""

from __future__ import annotations

from typing import Any

from .gpipe import gpipe_order
from .interleaved import interleaved_order
from .one_f_one_b import (
    eager_one_f_one_b_order,
    eager_two_buffered_order,
    one_f_one_b_order,
    two_buffered_order,
)
from .overlapped import overlapped_interleaved_order, overlapped_one_f_one_b_order
from .registry import Heuristic
from .v_families import one_f_one_b_v_order, v_half_order, v_min_order, v_zb_order
from .zero_bubble_auto import zb_auto_order
from .zero_bubble_handmade import zb_1p_fixed_order, zb_h1_order, zb_h2_order

_ZERO_BUBBLE = "Qi et al., arXiv:2401.10241, section"
_CONTROLLABLE = "Qi et al., arXiv:2405.15362, section 3"
_TRIED: dict[str, Any] = {"params": "v_blocks", "pace": 5e-6, "trial_pace": 4.5e-4, "trials": 0.4}
"""What a family whose building block is tried at the costs of the instance takes, and its parameters."""

PUBLISHED: tuple[Heuristic, ...] = (
    Heuristic(
        name="gpipe",
        make=gpipe_order,
        pace=3e-6,
        placements=("linear",),
        memory="n activations",
        source="Huang et al., arXiv:1811.06965, section 2.3",
    ),
    Heuristic(
        name="1f1b",
        make=one_f_one_b_order,
        pace=2e-6,
        placements=("linear",),
        memory="p activations on the first device, one fewer on each next",
        source="Narayanan et al., arXiv:2006.09503, section 3; without a flush section 3.1",
        flushless=two_buffered_order,
    ),
    Heuristic(
        name="eager-1f1b",
        make=eager_one_f_one_b_order,
        placements=("linear",),
        memory="2p - 1 activations on the first device, two fewer on each next",
        source="Zhuang et al., arXiv:2211.05322, section 4",
        flushless=eager_two_buffered_order,
    ),
    Heuristic(
        name="interleaved-1f1b",
        make=interleaved_order,
        params="interleaved",
        placements=("loop",),
        memory="(v + 1)p - 1 activations on the first device, two fewer on each next, if p divides n",
        source="Narayanan et al., arXiv:2104.04473, section 2.2",
    ),
    Heuristic(
        name="1f1b-overlap",
        make=overlapped_one_f_one_b_order,
        placements=("linear",),
        memory="2p activations on the first device, two fewer on each next",
        source="combined 1F1B of Megatron-Core; pairs as in DeepSeek-AI, arXiv:2412.19437, section 3.2.1",
    ),
    Heuristic(
        name="interleaved-overlap",
        make=overlapped_interleaved_order,
        params="interleaved",
        placements=("loop",),
        memory="(v + 1)p activations on the first device, two fewer on each next, if p divides n",
        source="combined 1F1B of Megatron-Core; pairs as in DeepSeek-AI, arXiv:2412.19437, section 3.2.1",
    ),
    Heuristic(
        name="zb-1p-fixed",
        make=zb_1p_fixed_order,
        placements=("linear",),
        memory="p activations; some of them as pending W's",
        source=f"{_ZERO_BUBBLE} 2 (the same order as zb-h1)",
    ),
    Heuristic(
        name="zb-h1",
        make=zb_h1_order,
        placements=("linear",),
        memory="p activations; some of them as pending W's",
        source=f"{_ZERO_BUBBLE} 2",
    ),
    Heuristic(
        name="zb-h2",
        make=zb_h2_order,
        placements=("linear",),
        memory="2p - 1 activations; some of them as pending W's",
        source=f"{_ZERO_BUBBLE} 2",
    ),
    Heuristic(
        name="zb-auto",
        make=zb_auto_order,
        placements=("linear",),
        memory="any limit per device; p activations give ZB-1p, 2p ZB-2p",
        source=f"{_ZERO_BUBBLE} 3.1",
    ),
    Heuristic(
        name="v-half",
        make=v_half_order,
        **_TRIED,
        placements=("v",),
        memory="about half of 1F1B's: 2 * ((p + 2) // 2) activations",
        source=_CONTROLLABLE,
    ),
    Heuristic(
        name="v-min",
        make=v_min_order,
        **_TRIED,
        placements=("v",),
        memory="about a third of 1F1B's: 2 * ((p + 4) // 3) activations",
        source=_CONTROLLABLE,
    ),
    Heuristic(
        name="v-zb",
        make=v_zb_order,
        **_TRIED,
        placements=("v",),
        memory="that of 1F1B: 2p activations",
        source=_CONTROLLABLE,
    ),
    Heuristic(
        name="1f1b-v",
        make=one_f_one_b_v_order,
        pace=2e-6,
        placements=("v",),
        memory="about two thirds of 1F1B's",
        source=_CONTROLLABLE,
    ),
)
"""The families, in the sequence in which ``tightpipe methods`` lists them."""
