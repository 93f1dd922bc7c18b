"""Test files that `make quick` leaves out: tests of seconds each, or of more than ten in sum; the longest first."""

SLOW = (
    *("solver/test_soundness.py", "solver/test_windows.py", "kernels/test_kernels.py"),
    *("core/test_interruption.py", "solver/test_cpsat_optima.py", "solver/test_cpsat_solve.py"),
    *(
        "cli/test_startup.py",
        "milp/test_milp_solve.py",
        "milp/test_milp_optima.py",
        "solver/test_independent.py",
    ),
    *(
        f"experiments/test_{name}.py"
        for name in (
            "sweep",
            "dask",
            "compare",
            "exact",
            "slurm",
            "realistic",
            "gallery",
            "published_tables",
            "theorem_study",
        )
    ),
    *("docs/test_documents.py", "solver/test_memory_limit.py", "core/test_files.py", "test_platforms.py"),
    *(f"solver/test_{name}.py" for name in ("energetic", "fluid", "fold")),
    *("program/test_lowering.py", "library/test_all_records.py", "planning/test_many_plans.py"),
)
