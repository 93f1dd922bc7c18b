"""A sweep in batch jobs: dask-jobqueue's real job scripts, run by a stand-in for Slurm's commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments.sweeps import rows_of, start, write_experiment
from helpers.command_line import call

EXPERIMENT = """\
instances = ["small.json"]
methods = ["list", "greedy-v"]
threads = 2

[slurm]
queue = "short"
cores = 3
memory = "2GiB"
interface = "lo"
"""
SBATCH = """#!/bin/bash
for script; do :; done
cp "$script" {folder}/job.sh
bash {folder}/job.sh > {folder}/job.log 2>&1 &
echo $! >> {folder}/pids
echo "Submitted batch job $!"
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an `sbatch` that runs the job here, and an `scancel`, first on the path."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH.format(folder=tmp_path)), ("scancel", '#!/bin/bash\nkill "$@"\n')):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(commands), prepend=":")
    return tmp_path


def test_solves_run_in_jobs_that_book_their_threads(slurm: Path) -> None:
    experiment, folder = write_experiment(slurm, EXPERIMENT), slurm / "results"
    sweep = start(experiment, folder, "--executor", "slurm", "--jobs", "1", "--quiet")
    _, errors = sweep.communicate()
    assert (sweep.returncode, errors) == (0, "")
    assert {(row.state, row.attempts) for row in rows_of(folder)} == {("done", 1)}
    script = (slurm / "job.sh").read_text()
    assert "#SBATCH -p short" in script
    assert "#SBATCH --cpus-per-task=6" in script
    assert "--nthreads 3" in script


def test_options_that_slurm_does_not_have(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path, EXPERIMENT + "colour = 1\n")
    done = call("sweep", experiment, "-o", tmp_path, "--executor", "slurm")
    assert done.returncode == 2
    assert "slurm" in done.stderr
