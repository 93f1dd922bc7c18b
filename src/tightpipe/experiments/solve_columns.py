"""What every table of solves says of a solve: what was asked of it, and what it found."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from importlib.metadata import version

from ..core.activations import memory_of_1f1b
from ..core.allowance import Allowance
from ..core.instance import Instance
from ..core.metrics import imbalance, works
from ..core.result import Result


def allowance_columns(allowance: Allowance, *, searches: bool) -> dict[str, object]:
    """Return the columns of the allowance and versions; without a search, it makes no difference."""
    limit = allowance.time_limit if searches else None
    return {
        "workers": allowance.threads if searches else 1,
        "seed": allowance.seed if searches else 0,
        "time_limit": limit if limit is None else f"{limit:g}",
        "tightpipe_version": version("tightpipe"),
        "ortools_version": version("ortools"),
    }


def memory_column(instance: Instance) -> dict[str, object]:
    """Return the column that makes the memory limits of several placements comparable."""
    share = memory_of_1f1b(instance)
    return {"memory_of_1f1b": share if share is None else f"{share:.6f}"}


def added_columns(instance: Instance) -> dict[str, object]:
    """Return the columns that tables of earlier versions lack, as far as the instance tells them."""
    even = f"{imbalance(works(instance)):.6f}"
    return {**memory_column(instance), "imbalance": even, "proof": None}


def result_columns(result: Result) -> dict[str, object]:
    """Return the columns of a result that has just been found on this machine."""
    rate, gap = result.bubble_rate, result.gap
    return {
        "status": str(result.status),
        "cost": result.cost,
        "work": result.work,
        "bubble": result.bubble,
        "bubble_rate": rate if rate is None else f"{rate:.6f}",
        "imbalance": f"{result.imbalance:.6f}",
        "bound": result.bound,
        "proof": result.proof,
        "gap": gap if gap is None else f"{gap:.6f}",
        "peak_mem": result.peak_memory,
        "seconds": f"{result.seconds:.3f}",
        "host_cpus": os.cpu_count(),
        "finished_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
