"""Results are of one engine, and benchmarks/renew.py says which are not, and renews them."""

from __future__ import annotations

import csv
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tightpipe import InputError
from tightpipe.base.errors import StoppedError
from tightpipe.base.sources import planner_version
from tightpipe.experiments.study import mark_of

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
import renew as script  # noqa: E402  # in no package
from renew import (  # noqa: E402
    LIST,
    Result,
    asks_otherwise,
    chosen,
    engines,
    renew,
    show_list,
    state,
    strangers,
)

EXPERIMENTS = ROOT / "experiments"
ENGINE, OTHER = "1.2.3+abcdef0", "0.1.0"
NAMED = re.compile(r"\d+\.\d+\.\d+\+[0-9a-f]{7,8}")
"""The name of an engine: with eight digits of its hash, or of an earlier engine with seven of a commit."""
EARLIER: set[str] = set()
"""Results that are of another engine than all others. What is renewed has to be taken out."""
MISSING: set[str] = set()
"""Results that have not been made yet."""
LONGER: set[str] = set()
"""Results that were made with more time than their commands ask for now, or by an earlier planner.

docs/results.md says with how much, and of which. What is renewed has to be taken out.
"""
MADE = [result for result in LIST if result.name not in MISSING]


def test_a_result_that_is_missing_has_no_file() -> None:
    files = [file for result in LIST if result.name in MISSING for file in result.files]
    assert [file for file in files if (script.RESULTS / file).exists()] == []


@pytest.mark.parametrize("result", MADE, ids=lambda result: result.name)
def test_a_result_is_complete_and_of_one_engine(result: Result) -> None:
    named = engines(result)
    assert len(named) == 1
    assert all(map(NAMED.fullmatch, named)), named
    assert all((script.RESULTS / file).exists() for file in result.files)


def test_all_results_together_take_two_hours_at_most() -> None:
    assert sum(result.planned for result in LIST) <= 120


def test_what_was_made_otherwise_than_its_command_says_is_known() -> None:
    assert {result.name for result in MADE if asks_otherwise(result)} == LONGER


def test_results_do_not_mix_engines() -> None:
    renewed = {result.name: engines(result) for result in MADE if result.name not in EARLIER}
    used = set().union(*renewed.values())
    assert len(used) == 1, renewed
    assert [r.name for r in MADE if r.name in EARLIER and engines(r) == used] == [], (
        "take them out of EARLIER"
    )


def test_every_row_of_every_table_is_of_one_engine() -> None:
    earlier = {file for result in LIST if result.name in EARLIER for file in result.files}
    named = set()
    for path in script.RESULTS.rglob("*.csv"):
        if path.relative_to(script.RESULTS).as_posix() not in earlier:
            with path.open(newline="") as file:
                named |= {row["engine"] for row in csv.DictReader(file)}
    assert len(named) == 1
    assert all(map(NAMED.fullmatch, named)), named


def test_no_file_is_a_stranger_and_no_earlier_result_is_unknown() -> None:
    assert strangers() == []
    assert (EARLIER | MISSING | LONGER) - {result.name for result in LIST} == set()


def test_the_studies_of_the_list_are_the_experiments_each_with_its_figure() -> None:
    figures = {path.stem: tomllib.loads(path.read_text())["figure"] for path in EXPERIMENTS.glob("*.toml")}
    studies = {result.name: result for result in LIST if result.command.startswith("tightpipe sweep ")}
    assert studies.keys() == figures.keys()
    for name, figure in figures.items():
        assert f"{name}/{figure}.png" in studies[name].files
        assert studies[name].command == f"tightpipe sweep experiments/{name}.toml"


def test_the_page_of_results_names_every_result_that_was_made() -> None:
    page = (ROOT / "docs/results.md").read_text()
    assert [r.name for r in MADE if not any(f"results/{file}" in page for file in r.files)] == []


SMALL = Result("small", "tightpipe --version", ("small.csv", "small.md", "small.png", "small.tex"), 0.1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results, of which the list has one."""
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "LIST", (SMALL,))
    monkeypatch.setattr(script, "_code_now", lambda: (ENGINE, ENGINE))
    monkeypatch.setattr(script, "LIBRARY", "python library.py")
    (tmp_path / "library.py").write_text(
        "from pathlib import Path\nfor path in Path('results').glob('*.csv'):\n    Path('known').write_text(path.read_text())"
    )
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def make(folder: Path, *made_by: str) -> None:
    """Write the files of the small result, table, page and picture by the engines in this sequence."""
    table, page, picture = made_by
    (folder / "small.csv").write_text(f"method,engine\nlist,{table}\nbest,{table}\n")
    (folder / "small.md").write_text(f"Seed 0, tightpipe {page}, OR-Tools 9.\n")
    metadata = {"Software": f"tightpipe {picture}"}
    Figure(figsize=(1, 1)).savefig(folder / "small.png", metadata=metadata)
    (folder / "small.tex").touch()


@pytest.mark.parametrize(
    ("made_by", "expected"),
    [
        ((ENGINE, ENGINE, ENGINE), "fresh"),
        ((OTHER, OTHER, OTHER), "stale"),
        ((ENGINE, OTHER, OTHER), "unfinished"),
        ((ENGINE, ENGINE, OTHER), "unfinished"),
    ],
)
def test_every_kind_of_file_is_asked_for_its_engine(
    made_by: tuple[str, ...], expected: str, folder: Path
) -> None:
    make(folder, *made_by)
    assert engines(SMALL) == set(made_by)
    assert state(SMALL, ENGINE) == expected
    assert list(chosen((), ENGINE)) == ([] if expected == "fresh" else [SMALL])
    assert list(chosen(("small",), ENGINE)) == [SMALL]


def test_what_is_not_there_is_missing_or_unfinished(folder: Path) -> None:
    assert state(SMALL, ENGINE) == "missing"
    make(folder, ENGINE, ENGINE, ENGINE)
    (folder / "small.tex").unlink()
    assert state(SMALL, ENGINE) == "unfinished"


def test_a_result_whose_command_was_interrupted_is_unfinished_and_its_mark_no_stranger(folder: Path) -> None:
    make(folder, ENGINE, ENGINE, ENGINE)
    assert state(SMALL, ENGINE) == "fresh"
    mark_of(folder / "small.csv").touch()
    assert state(SMALL, ENGINE) == "unfinished"
    assert strangers() == []


def test_pending_rows_and_another_experiment_make_a_study_unfinished(folder: Path) -> None:
    study = Result("s", "tightpipe sweep experiments/s.toml", ("s/rows.csv", "s/experiment.toml"), 1)
    for path in (folder / "s", folder.parent / "experiments"):
        path.mkdir()
    declared, kept = folder.parent / "experiments/s.toml", folder / "s/experiment.toml"
    declared.write_text("a = 1\n")
    kept.write_text("a = 1\n")
    rows = folder / "s/rows.csv"
    rows.write_text(f"state,engine\ndone,{ENGINE}\nfailed,{ENGINE}\n")
    assert state(study, ENGINE) == "fresh"
    declared.write_text("a = 2\n")
    assert state(study, ENGINE) == "unfinished"
    kept.write_text("a = 2\n")
    rows.write_text(f"state,engine\ndone,{ENGINE}\npending,{ENGINE}\n")
    assert state(study, ENGINE) == "unfinished"


def test_the_plan_of_a_study_is_that_all_its_searches_use_up_their_limits(folder: Path) -> None:
    experiments = folder.parent / "experiments"
    experiments.mkdir()
    text = 'settings = ["toy-4x8"]\nmemory = ["2p", "3p"]\nmethods = ["list", "best", "improve"]\n'
    for rest, minutes in (("time_limits = [30]", 1), ("time_limits = [30]\nseeds = [0, 1]\nthreads = 2", 4)):
        (experiments / "s.toml").write_text(f"{text}{rest}\n")
        study = Result("s", "tightpipe sweep experiments/s.toml", (), None)
        assert study.planned == minutes
    assert SMALL.planned == SMALL.minutes


def test_a_table_that_was_made_with_another_time_limit_is_unfinished(folder: Path) -> None:
    (folder / "a.csv").write_text(
        f"method,time_limit,effort,engine\nlist,,,{ENGINE}\nbest,600.0,2.0,{ENGINE}\n"
    )
    for command, expected in (
        ("tightpipe compare", "fresh"),
        ("tightpipe compare --time-limit 600", "fresh"),
        ("tightpipe compare --time-limit 30", "unfinished"),
        ("python benchmarks/plans.py --seconds 600", "fresh"),
        ("python benchmarks/plans.py --seconds 30 --workers 1", "unfinished"),
        ("python benchmarks/tune.py --effort 2", "fresh"),
        ("python benchmarks/tune.py --effort 1.5", "unfinished"),
    ):
        assert state(Result("a", command, ("a.csv",), 1), ENGINE) == expected


def test_a_table_of_plans_by_another_planner_is_unfinished(folder: Path) -> None:
    command = "python benchmarks/plans.py --seconds 15"
    for planner, expected in ((planner_version(), "fresh"), (OTHER, "unfinished")):
        (folder / "a.csv").write_text(f"time_limit,planner,engine\n15.0,{planner},{ENGINE}\n")
        assert state(Result("a", command, ("a.csv",), 1), ENGINE) == expected


def test_the_list_says_what_made_a_stale_result_and_names_strangers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(folder, OTHER, OTHER, OTHER)
    for name in ("old.csv", "old.csv.bak"):
        (folder / name).touch()
    show_list(ENGINE)
    said = capsys.readouterr().out.splitlines()
    assert said[1].split()[:3] == ["small", "stale", OTHER]
    assert said[2] == "all of them take about 0 min on 2 cores"
    assert said[3].startswith(f"engine {ENGINE}; ")
    assert said[4:] == ["stranger: results/old.csv, which no command in this list writes"]


def test_nothing_is_renewed_while_a_source_of_the_engine_is_not_committed(folder: Path) -> None:
    source = folder.parent / "src/tightpipe/model/a.py"
    source.parent.mkdir(parents=True)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", "-C", str(folder.parent), *words], check=True)
    good = program(folder, f"open('results/small.csv', 'w').write('engine\\n{ENGINE}\\n')")
    source.write_text("new")
    with pytest.raises(InputError, match="sources = 'src/tightpipe/model/': commit these sources"):
        renew([good], ENGINE)
    source.unlink()
    renew([good], ENGINE)
    assert state(good, ENGINE) == "fresh"


def test_a_name_that_is_not_in_the_list_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="name = 'large': must be of small"):
        list(chosen(("large",), ENGINE))


def program(folder: Path, code: str) -> Result:
    (folder.parent / "program.py").write_text(code)
    return Result("program", "python program.py", ("small.csv",), 0.1)


def test_commands_run_in_the_root_and_what_fails_does_not_hold_up_the_others(folder: Path) -> None:
    (folder.parent / "bad.py").write_text("raise SystemExit(1)")
    bad = Result("bad", "python bad.py", ("bad.csv",), 0.1)
    good = program(folder, "open('results/small.csv', 'w').write('engine\\n1.2.3+abcdef0\\n')")
    with pytest.raises(StoppedError, match=r"failed: bad$"):
        renew([bad, good], ENGINE)
    assert state(good, ENGINE) == "fresh"


def test_the_library_takes_over_what_was_found_and_says_if_it_cannot(folder: Path) -> None:
    good = program(folder, f"open('results/small.csv', 'w').write('engine\\n{ENGINE}\\n')")
    renew([good], ENGINE)
    assert ENGINE in (folder.parent / "known").read_text()
    (folder.parent / "library.py").write_text("raise SystemExit(1)")
    with pytest.raises(StoppedError, match=r"failed: library$"):
        renew([good], ENGINE)


@pytest.mark.parametrize("then", [(OTHER, ENGINE), (ENGINE, OTHER)], ids=["engine", "planner"])
def test_the_run_ends_when_the_sources_change(
    then: tuple[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = program(folder, ""), program(folder, "open('second', 'w')")
    names = iter([(ENGINE, ENGINE), then])
    monkeypatch.setattr(script, "_code_now", lambda: next(names))
    with pytest.raises(StoppedError, match="changed while program was measured"):
        renew([first, second], ENGINE)
    assert not (folder / "second").exists()


def test_the_store_of_a_stale_study_is_removed_and_that_of_an_unfinished_one_is_kept(folder: Path) -> None:
    study = Result("program", "python program.py", ("small.csv",), 0.1)
    program(folder, "")
    store = folder / "store.sqlite"
    for engine, kept in ((ENGINE, True), (OTHER, False)):
        store.touch()
        (folder / "small.csv").write_text(f"engine\n{engine}\n{OTHER}\n")
        renew([study], ENGINE)
        assert store.exists() == kept


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_first_and_then_the_list(number: signal.Signals, folder: Path) -> None:
    wait = "import signal, time\nfrom pathlib import Path\n"
    wait += "signal.signal(signal.SIGTERM, lambda *_: exit(143))\nPath('begun').touch()\n"
    wait += "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    time.sleep(1)\n    Path('kept').touch()\n    exit(130)\n"
    program(folder, wait)
    code = (
        f"import sys\nsys.path.append({str(ROOT / 'benchmarks')!r})\nimport renew\nfrom pathlib import Path\n"
    )
    code += f"renew.ROOT = Path({str(folder.parent)!r})\n"
    code += "one = renew.Result('program', 'python program.py', ('a.csv',), 1)\n"
    code += f"renew.renew([one, one], {ENGINE!r})\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, process_group=0
    )
    wait_for(lambda: (folder.parent / "begun").exists())
    subprocess.run(["kill", f"-{number.value}", "--", f"-{process.pid}"], check=True)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert said.count("] program,") == 1
    assert (folder.parent / "kept").exists() == (number == signal.SIGINT)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_the_command_lists_and_refuses_without_a_trace() -> None:
    words = [sys.executable, str(ROOT / "benchmarks/renew.py")]
    listed = subprocess.run([*words, "--list"], capture_output=True, text=True)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1 : 1 + len(LIST)]] == [
        r.name for r in LIST
    ]
    refused = subprocess.run([*words, "nothing"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("renew.py: name = 'nothing': must be of table5, ")
    assert refused.stderr.count("\n") == 1
