"""Bad input of every kind to every command: exit status 2 and one clear line, never a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import SMALL, call, write

TABLE = (
    "stage,kind,time,memory\n"
    + "".join(
        f"{stage},{kind},5,{held}\n"
        for stage in range(4)
        for kind, held in zip("FBW", (4, -2, -2), strict=True)
    )
    + ",comm,3,0\n"
)
EXPERIMENT = 'instances = ["i.json"]\nmethods = ["list"]\n'
RANGES = [
    {"ph": "X", "name": f"PP:{s}{kind}0", "ts": 10 * k, "dur": 5}
    for s in range(4)
    for k, kind in enumerate("FIW")
]
LOG = "Performing ILP with: f=(5, 6), b=(4, 4), w=(3, 3), c=1, f_mem=(9, 9), b_mem=(-4, -4), w_mem=(-5, -5), "


def replaced(**entries: Any) -> str:
    return json.dumps(SMALL | entries)


FILES: dict[str, str | bytes] = {
    "i.json": json.dumps(SMALL),
    "empty.json": "",
    "blank.toml": " \n",
    "comment.toml": "# nothing\n",
    "list.json": "[]",
    "number.json": "3",
    "null.json": "null",
    "binary.json": bytes(range(256)),
    "cut.json.gz": gzip.compress(bytes(1000), mtime=0)[:15] + b"?" * 20,
    "toml.json": "devices = 2\n",
    "json.toml": json.dumps(SMALL),
    "deep.json": "[" * 100_000,
    "deep.toml": "a = " + "[" * 100_000,
    "digits.json": '{"devices": ' + "9" * 5000 + "}",
    "digits.toml": "devices = " + "9" * 5000,
    "hexadecimal.toml": "devices = 0x" + "F" * 4000,
    "twice.json": '{"devices": 2, "devices": 3}',
    "nan.json": json.dumps(SMALL).replace('"forward": 10', '"forward": NaN'),
    "infinite.json": json.dumps(SMALL).replace('"comm": 1', '"comm": Infinity'),
    "date.toml": "devices = 2020-01-01\nmicrobatches = 4\nforward = 1\nbackward = 1\nweight = 1\n",
    "float.json": replaced(forward=1e3),
    "text.json": replaced(forward="10"),
    "table.json": replaced(forward={"a": 1}),
    "huge.json": replaced(forward=10**30),
    "devices.json": replaced(devices=1025),
    "gradient.json": replaced(backward=[12, 0, 12, 12]),
    "fused.json": replaced(fused=0),
    "absent.json": replaced(backward=[0, 12, 12, 12], memory={**SMALL["memory"], "weight": [-2, -1, -1, -1]}),
    "unbalanced.json": replaced(memory={**SMALL["memory"], "weight": -2}),
    "pairs.json": replaced(pairs=[[9] * 4, [9] * 3, [9] * 4, [9] * 4]),
    "rows.json": replaced(pairs=[[9] * 4] * 3),
    "both.json": replaced(classes=[{"count": 4}], slices=[{}]),
    "law.toml": "devices = 1\nforward = {tokens = 0.5}\nbackward = {tokens = 1}\nweight = 3\nplacement = 'linear'\n",
    "falling.toml": "devices = 1\nforward = {fixed = 9, tokens = -1}\nbackward = 1\nweight = 1\nplacement = 'linear'\n",
    "counted.json": replaced(lengths=[30, 20, 10, 5]),
    "lengths.csv": "length\n30\n20\n",
    "zero.csv": "length\n30\n0\n",
    "megatron.json": json.dumps(
        {
            "layers": [{"count": 8, "forward": 3, "backward": 3, "weight": 3}],
            "cluster": {"devices": 4},
            "batch": {"microbatches": 8},
            "search": {"runtime": "megatron", "placements": ["v"]},
        }
    ),
    "sum.json": replaced(classes=[{"count": 2}, {"count": 1}]),
    "no_count.json": replaced(classes=[{"count": 4}, {"forward": 12}]),
    "zero_class.json": replaced(classes=[{"count": 3}, {"count": 1, "forward": 0}]),
    "negative.json": replaced(devices=-(10**20)),
    "memory.json": replaced(memory=[1, 2]),
    "diagonal.json": replaced(comm=[[1, 2], [3, 0]]),
    "ragged.json": replaced(comm=[[0, 2], [3]]),
    "flush.json": replaced(flush="no"),
    "chunks.json": replaced(chunks=10**9, placement="loop"),
    "chunk_list.json": replaced(chunks=[2]),
    "objective.json": replaced(objective=["makespan"]),
    "iterations.json": replaced(iterations=1.0),
    "memory_text.json": replaced(memory={**SMALL["memory"], "limit": "8 GB"}),
    "overlapped.json": replaced(overlapped=[1, 2, 3]),
    "link.json": replaced(link_occupancy=-1),
    "header.csv": "stage,kind,time,memory\n",
    "no_header.csv": TABLE.split("\n", 1)[1],
    "negative.csv": TABLE.replace("0,F,5", "0,F,-5"),
    "unbalanced.csv": TABLE.replace("2,W,5,-2", "2,W,5,-1"),
    "stage.csv": TABLE.replace("\n3,F", "\n99999999999999999999,F"),
    "far_stage.csv": TABLE.replace("\n3,F", "\n999999999,F"),
    "wide.csv": TABLE + "x" * 200_000,
    "quote.csv": TABLE.replace("0,F,5,4", '"0,F,5,4'),
    "nan.trace": json.dumps(RANGES).replace("5}", "NaN}"),
    "negative.trace": json.dumps(RANGES).replace("5}", "-5}"),
    "list.log": LOG + "mem_limit=([],)",
    "set.log": LOG + "mem_limit={[1]: 2}",
    "sum.log": LOG.replace("-5, -5", "-5, -4") + "mem_limit=(40, 40)",
    "e_text.toml": EXPERIMENT.replace('["list"]', '"list"'),
    "e_number.toml": EXPERIMENT.replace('["list"]', "[3]"),
    "e_nan.toml": EXPERIMENT + "time_limits = [nan]\n",
    "e_list.toml": EXPERIMENT + "memory = [[1]]\n",
    "e_table.toml": EXPERIMENT + "seeds = [{a = 1}]\n",
    "e_objective.toml": EXPERIMENT + 'objectives = ["speed"]\n',
    "e_slurm.toml": EXPERIMENT + "slurm = 3\n",
    "e_threads.toml": EXPERIMENT + "threads = 2000\n",
    "e_memory.toml": EXPERIMENT + 'memory = ["0p"]\n',
    "e_instance.toml": EXPERIMENT.replace("i.json", "s.json"),
    "e_pattern.toml": EXPERIMENT.replace("i.json", "*.xyz"),
    "e_date.toml": EXPERIMENT + "comm = [2020-01-01]\n",
    "tasks.json": '{"nodes": [{"name": "a", "kind": "rest"}]}',
    "cycle.json": '{"nodes": [{"name": "a", "kind": "compute", "inputs": ["a"]}]}',
    "kind_list.json": '{"nodes": [{"name": "a", "kind": ["compute"]}]}',
}
PROFILE = ("costs", "profile", "--devices", "2", "--microbatches", "4", "-o", "o.json")
NOT_JSON = "not JSON, or truncated"
MEASURE = (
    *("costs", "profile", "--devices", "2", "-o", "o.json"),
    *("--layers", "4", "--hidden", "16", "--heads", "2", "--sequence", "16"),
)
COMMANDS = {"PROFILE": PROFILE, "MEASURE": MEASURE}

BAD: list[tuple[str, str]] = [
    # instances
    ("bound empty.json", "empty.json: not JSON, or truncated: it is empty"),
    ("bound blank.toml", "blank.toml: not TOML, or truncated: it is empty"),
    ("bound comment.toml", "comment.toml: missing key 'devices'"),
    ("bound list.json", "list.json: []: must be a table of keys and values, as in an instance file"),
    ("bound number.json", "number.json: 3: must be a table of keys and values, as in an instance file"),
    ("bound null.json", "null.json: None: must be a table of keys and values, as in an instance file"),
    ("bound binary.json", "binary.json: not a text file"),
    ("bound toml.json", f"toml.json: {NOT_JSON}"),
    ("bound json.toml", "json.toml: not TOML"),
    ("bound deep.json", "deep.json: nested too deeply"),
    ("bound deep.toml", "deep.toml: nested too deeply"),
    ("bound digits.json", "digits.json: holds an integer of more than"),
    ("bound digits.toml", "digits.toml: holds an integer of more than"),
    ("bound hexadecimal.toml", "hexadecimal.toml: holds an integer of more than"),
    ("sweep hexadecimal.toml -o out", "hexadecimal.toml: holds an integer of more than"),
    ("bound twice.json", "twice.json: key 'devices' stands twice"),
    ("bound nan.json", "nan.json: forward = nan: must be an integer"),
    ("bound infinite.json", "infinite.json: comm = inf: must be an integer"),
    ("bound date.toml", "date.toml: devices = datetime.date(2020, 1, 1): must be an integer"),
    ("bound float.json", "float.json: forward = 1000.0: must be an integer"),
    ("bound text.json", "text.json: forward = '10': must be an integer"),
    ("bound table.json", "table.json: forward = {'a': 1}: must be an integer"),
    ("bound huge.json", "must be at most 1000000000000\n"),
    ("bound devices.json", "devices.json: devices = 1025: must be at most 1024\n"),
    ("bound negative.json", "devices = -100000000000000000000: must be at least 1"),
    ("bound memory.json", "memory.json: memory = [1, 2]: must be a table"),
    ("bound diagonal.json", "diagonal.json: comm[0][0] = 1: must be 0"),
    ("bound ragged.json", "ragged.json: comm[1] = [3]: has 1 entries"),
    ("bound flush.json", "flush.json: flush = 'no': must be true or false"),
    ("bound chunks.json", "chunks.json: chunks = 1000000000: must be at most 166666\n"),
    ("bound chunk_list.json", "chunk_list.json: chunks = [2]: must be an integer"),
    ("bound objective.json", "objective.json: objective = ['makespan']: must be one of"),
    ("bound iterations.json", "iterations.json: iterations = 1.0: must be an integer"),
    ("bound memory_text.json", "memory_text.json: memory.limit = '8 GB': must be an integer"),
    ("bound overlapped.json", "overlapped.json: overlapped = [1, 2, 3]: has 3 entries"),
    ("bound link.json", "link.json: link_occupancy = -1: must be at least 0"),
    ("bound folder", "folder: cannot be read: Is a directory"),
    ("bound none", "none: no such file"),
    ("solve s.json", "s.json: is a schedule file, must be an instance file"),
    ("solve p.json", "p.json: is a program file, must be an instance file"),
    ("solve i.json --warm-start i.json", "i.json: is an instance file, must be a schedule file"),
    ("solve i.json --warm-start folder", "folder: cannot be read: Is a directory"),
    ("solve i.json --workers 99999", "workers = 99999: must be at most 1024\n"),
    ("solve i.json --seed 99999999999", "seed = 99999999999: must be at most 2147483647\n"),
    ("solve i.json --time-limit nan", "time_limit = nan: must be a number of seconds"),
    ("solve i.json --time-limit 1e400", "time_limit = inf: must be a number of seconds"),
    ("solve i.json --max-memory nan", "max_memory = nan: must be a number of GB"),
    ("solve gradient.json", "gradient.json: backward[1] = 0: must be at least 1: the gradient passes on to stage 0"),
    ("solve fused.json", "fused.json: fused = 0: must be at least 1\n"),
    ("solve absent.json", "absent.json: memory.backward = -1: must be 0 at stage 0, which has no backward\n"),
    ("solve unbalanced.json", "forward, backward and weight sum to -1 at stage 0, must sum to 0\n"),
    ("solve pairs.json", "pairs.json: pairs[1] = [9, 9, 9]: has 3 entries, must have one per stage: 4\n"),
    ("solve rows.json", "has 3 rows, must have a row for the F of each stage: 4\n"),
    ("solve both.json", "both.json: slices = 1: must be left out where `classes` are given\n"),
    ("solve falling.toml --lengths lengths.csv", "falling.toml: forward = -21.0: must be above 0: the law of"),
    ("solve falling.toml --lengths lengths.csv --replicas 2", "falling.toml: forward = -21.0: must be above 0"),
    ("solve i.json --lengths lengths.csv", "i.json: is an instance file, must be a law file"),
    ("solve counted.json", "counted.json: microbatches = 4: unknown key; known are devices, forward,"),
    ("solve law.toml --lengths zero.csv", "zero.csv: line 3: length = 0: must be at least 1\n"),
    ("solve law.toml --lengths lengths.csv --replicas 2 -o taken", "taken/replica-0.json: cannot be written: it is a folder\n"),
    ("solve law.toml --lengths lengths.csv --replicas 3", "replicas = 3: must be at most the number of microbatches, 2\n"),
    ("plan megatron.json", "megatron.json: search.placements = 'v': Megatron-LM runs linear, loop only\n"),
    ("solve sum.json", "sum.json: microbatches = 4: must be the sum of the counts of the classes, 3\n"),
    ("solve no_count.json", "no_count.json: missing key 'count' in classes[1]; required are count\n"),
    ("solve zero_class.json", "zero_class.json: classes[1].forward = 0: must be at least 1, or backward and weight 0, which"),
    ("bound i.json --time-limit -1", "time_limit = -1.0: must be a number of seconds"),
    ("bound i.json --by-hand --time-limit 3", "--time-limit: does not go with --by-hand"),
    # schedules
    ("validate empty.json", "empty.json: not JSON, or truncated: it is empty"),
    ("validate i.json", "i.json: is an instance file, must be a schedule file"),
    ("validate p.json", "p.json: is a program file, must be a schedule file"),
    ("validate number.json", "number.json: 3: must be a table of keys and values, as in a schedule file"),
    ("explain p.json", "p.json: is a program file, must be a schedule file"),
    ("explain s.json --longest -1", "Invalid value for '--longest'"),
    ("plot s.json", "give a picture with -o, or --text"),
    ("plot i.json --text", "i.json: is an instance file, must be a schedule file"),
    ("plot s.json --text --scale 0", "Invalid value for '--scale'"),
    ("plot s.json -o s.xyz", "must end in one of .pdf, .png, .svg"),
    ("paper gallery -o none/g.png", "none/g.png: cannot be written: there is no such folder"),
    ("paper gallery -o g.xyz", "must end in one of"),
    ("lower p.json -o o.json", "p.json: is a program file, must be a schedule file"),
    ("export i.json --target csv -o o.csv", "i.json: is an instance file, must be a schedule file"),
    ("export s.json --target magic -o o.csv", "target = 'magic': must be one of"),
    ("run i.json", "i.json: is an instance file, must be a schedule file"),
    ("report nope", "nope: no such file or folder"),
    ("report nope -o o.html", "nope: no such file or folder"),
    ("report s.json", "give the page to write with -o"),
    ("report folder", "folder: holds neither"),
    ("report folder s.json", "paths = 'folder': give one folder of a study, or schedule files"),
    ("report i.json -o o.html", "i.json: is an instance file, must be a schedule file"),
    ("report binary.json -o o.html", "binary.json: not a text file"),
    # programs
    ("program replay s.json", "s.json: is a schedule file, must be a program file"),
    ("program replay list.json", "list.json: []: must be a table of keys and values, as in a program file"),
    ("program replay p.json --link-occupancy -1", "link_occupancy = -1: must be at least 0"),
    ("program replay p.json --link-occupancy x", "Invalid value for '--link-occupancy'"),
    ("program replay p.json s.json", "files = 's.json': one program at a time, unless --noise is given"),
    ("program replay p.json --samples 5", "--samples: goes with --noise"),
    ("program replay s.json --noise jitter:-1", "noise = 'jitter:-1': jitter must be a number from 0 to 10"),
    ("program replay s.json --noise hail:1", "noise = 'hail:1': must be one of: jitter:VARIATION"),
    ("program replay s.json --noise jitter:nope.csv", "nope.csv: no such file"),
    ("program replay s.json --noise slow-device:2:2", "'slow-device:2:2': device = 2: the instance has devices 0..1"),
    ("program replay s.json --noise jitter:0.1 --samples 0", "samples = 0: must be at least 1"),
    ("program replay s.json --noise jitter:0.1 --workers 0", "workers = 0: must be at least 1"),
    ("program replay s.json --noise jitter:0.1 --seed -1", "seed = -1: must be at least 0"),
    ("program replay s.json --noise jitter:0.1 --fuse", "--fuse: goes without --noise"),
    ("program replay s.json --noise jitter:0.1 -o none/t.csv", "none/t.csv: cannot be written"),
    ("program replay s.json --noise jitter:0.1 --figure f.xyz", "must end in one of .pdf, .png, .svg"),
    ("program replay s.json s.json --noise jitter:0.1", "schedule = 's.json': is given twice"),
    ("program replay i.json --noise jitter:0.1", "i.json: is an instance file, must be a schedule file"),
    ("program overlap i.json -o o.json", "i.json: is an instance file, must be a task list file"),
    ("program overlap p.json -o o.json", "p.json: is a program file, must be a schedule file"),
    ("program overlap tasks.json -o o.json", "tasks.json: nodes[0].kind = 'rest': must be one of"),
    ("program overlap kind_list.json -o o.json", "kind_list.json: nodes[0].kind = ['compute']: must be one of"),
    ("program overlap cycle.json -o o.json", "cycle.json: "),
    ("program overlap s.json -o o.json --passes magic", "passes = 'magic': must be one of"),
    # profiles
    ("PROFILE --table empty.json", "empty.json: is empty"),
    ("PROFILE --trace empty.json", "empty.json: not a Chrome trace, or truncated"),
    ("PROFILE --log empty.json", "empty.json: has no record"),
    ("PROFILE --table header.csv", "header.csv: times are missing"),
    ("PROFILE --table no_header.csv", "no_header.csv: line 1 = '0,F,5,4': must begin with"),
    ("PROFILE --table negative.csv", "negative.csv: line 2.time = -5.0: must be a number of microseconds"),
    ("PROFILE --table unbalanced.csv", "unbalanced.csv: memory of stage 2 = (4.0, -2.0, -1.0): F, B and W sum to 1"),
    ("PROFILE --table stage.csv", "stage.csv: line 11.stage = '99999999999999999999': must be"),
    ("PROFILE --table far_stage.csv", "far_stage.csv: stage = 999999999: must be at most 333333\n"),
    ("PROFILE --trace cut.json.gz", "cut.json.gz: cannot be read: "),
    ("PROFILE --table wide.csv", "wide.csv: line 15: not a CSV table: field larger than"),
    ("PROFILE --table quote.csv", "quote.csv: "),
    ("PROFILE --table binary.json", "binary.json: not a text file"),
    ("PROFILE --trace nan.trace", "nan.trace: PP:0F0.dur = nan: must be a number of microseconds"),
    ("PROFILE --trace negative.trace", "negative.trace: PP:0F0.dur = -5: must be a number of microseconds"),
    ("PROFILE --trace deep.json", "deep.json: not a Chrome trace: nested too deeply"),
    ("PROFILE --trace digits.json", "digits.json: not a Chrome trace: nested too deeply, or"),
    ("PROFILE --trace number.json", "number.json: must be a Chrome trace"),
    ("PROFILE --log i.json", "i.json: has no record 'Performing ILP with:"),
    ("PROFILE --placement linear --log list.log", "list.log: mem_limit = ([],): must have a number for every device"),
    ("PROFILE --placement linear --log set.log", "set.log: mem_limit = '{[1]: 2}': must be a number or a tuple of"),
    ("PROFILE --placement linear --log sum.log", "sum.log: memory of stage 1 = (9216.0, -4096.0, -4096.0): F, B and W sum to 1024"),
    ("PROFILE --log i.json --table i.json", "give one of --trace, --log and --table"),
    ("MEASURE", "--microbatches: is needed: the microbatches of a step"),
    ("MEASURE --microbatches 0", "microbatches = 0: must be at least 1\n"),
    ("MEASURE --sequence 32", "lengths = [16, 32]: must be 3 or more different numbers of tokens"),
    ("MEASURE --sequence 32 --sequence 64 --microbatches 4", "microbatches = 4: goes without a law"),
    ("PROFILE --layers 0 --hidden 1 --heads 1 --sequence 1", "layers = 0: must be at least 1"),
    # sweeps and tables
    ("sweep empty.json", "empty.json: not TOML, or truncated: it is empty"),
    ("sweep comment.toml", "comment.toml:1: missing key 'methods'"),
    ("sweep i.json", "i.json: not TOML"),
    ("sweep binary.json", "binary.json: not a text file"),
    ("sweep folder", "folder: cannot be read: Is a directory"),
    ("sweep deep.toml", "deep.toml: nested too deeply"),
    ("sweep e_text.toml", "e_text.toml:2: methods = 'list': must be a list"),
    ("sweep e_number.toml", "e_number.toml:2: methods = 3: must be the name of a method"),
    ("sweep e_nan.toml", "e_nan.toml:3: time_limits = nan: must be a number above 0"),
    ("sweep e_list.toml", "e_list.toml:3: memory = [1]: must be"),
    ("sweep e_table.toml", "e_table.toml:3: seeds = {'a': 1}: "),
    ("sweep e_objective.toml", "e_objective.toml:3: objectives = 'speed': must be one of device_span, makespan, step, own"),
    ("sweep e_slurm.toml", "e_slurm.toml:3: slurm = 3: must be a table"),
    ("sweep e_threads.toml", "e_threads.toml:3: threads = 2000: must be at most 1024\n"),
    ("sweep e_memory.toml", "e_memory.toml:3: memory = '0p': does not fit i: "),
    ("sweep e_instance.toml", "s.json: is a schedule file, must be an instance file"),
    ("sweep e_pattern.toml", "e_pattern.toml:1: instances = '*.xyz': no such file"),
    ("sweep e_date.toml", "e_date.toml:3: comm = datetime.date(2020, 1, 1): must be an integer"),
    ("sweep none", "none: no such file"),
    ("sweep e_memory.toml --at-once 0", "Invalid value for '--at-once'"),
    ("sweep none --status", "none: no such file"),
    ("sweep e_text.toml --status --extend", "--extend: does not go with --status"),
    ("sweep e_text.toml --status", "e_text.toml:2: methods = 'list': must be a list"),
    ("compare --memory p", "memory = 'p': must be 2p, 0.5x, smallest, longest, none, own, or a number"),
    ("compare --memory 1/0p", "memory = '1/0p': must be 2p, 0.5x, smallest, longest, none, own, or a number"),
    ("compare --memory nanp", "memory = 'nanp': must be 2p, 0.5x, smallest, longest, none, own, or a number"),
    ("compare -o negative.csv", "negative.csv: has other columns than this version writes; move it away to start anew\n"),
    ("paper realistic -o negative.csv", "negative.csv: has other columns than this version writes; move it away to start anew\n"),
    ("compare none.json", "none.json: no such file"),
    ("compare s.json", "s.json: is a schedule file, must be an instance file"),
    ("compare i.json ./i.json", "instances = './i.json': another file is called 'i' too, by which rows are told apart"),
    ("compare i.json --settings active", "settings = 'active': give instance files or settings, not both"),
    ("compare i.json --methods magic", "method = 'magic': must be one of"),
    ("compare i.json --methods zb-h1", "methods = 'zb-h1': schedules placement linear; i has v"),
    ("compare i.json --memory 2q", "memory = '2q': must be 2p, 0.5x, smallest, longest, none, own, or a number"),
    ("compare i.json --memory 0.1p", "memory = '0.1p': does not fit i: "),
    ("compare i.json -o negative.csv", "negative.csv: has other columns"),
    ("paper realistic --settings magic", "settings = 'magic': must be all, or of"),
    ("paper table 6", "Invalid value for"),
    ("paper table 5 -o none/t.csv", "none/t.csv: cannot be written: there is no such folder"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All bad files, and a good schedule and program."""
    made = tmp_path_factory.mktemp("bad")
    for name, content in FILES.items():
        if isinstance(content, bytes):
            (made / name).write_bytes(content)
        else:
            write(made, content, name)
    (made / "folder").mkdir()
    (made / "taken" / "replica-0.json").mkdir(parents=True)
    assert call("solve", "i.json", "--method", "list", "-o", "s.json", cwd=made).returncode == 0
    assert call("lower", "s.json", "-o", "p.json", cwd=made).returncode == 0
    return made


def contents(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@pytest.mark.parametrize(("command", "words"), BAD, ids=[command for command, _ in BAD])
def test_one_line_says_what_is_wrong_and_nothing_is_written(command: str, words: str, folder: Path) -> None:
    first, *others = command.split()
    before = contents(folder)
    done = call(*COMMANDS.get(first, (first,)), *others, cwd=folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("tightpipe: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert contents(folder) == before


def test_a_program_that_deadlocks_is_named(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "published.json"
    assert call("lower", folder / "s.json", "--order", "published", "-o", path).returncode == 0
    done = call("program", "replay", path, "--semantics", "blocking")
    assert done.returncode == 1
    assert done.stderr.startswith(f"tightpipe: {path}: devices wait for each other: ")


@pytest.mark.parametrize("noise", [(), ("--noise", "jitter:0.1")], ids=["plain", "noise"])
def test_a_program_beyond_the_memory_limit_is_not_replayed(
    noise: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    data = json.loads((folder / "p.json").read_text())
    data["instance"]["memory"]["limit"] = 4
    done = call("program", "replay", write(tmp_path, data, "tight.json"), *noise)
    assert (done.returncode, done.stdout) == (2, "")
    assert "tight.json: the program's order breaks a rule: memory_limit: device " in done.stderr


def test_a_trace_is_warned_about(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(RANGES))
    done = call(*PROFILE[:-1], tmp_path / "o.json", "--trace", tmp_path / "t.json", "--json")
    warnings = json.loads(done.stdout)["warnings"]
    assert len(warnings) == 3
    assert done.stderr.splitlines() == [f"tightpipe: warning: {text}" for text in warnings]
    assert "comm is 0" in done.stderr
    assert "memory is null" in done.stderr
