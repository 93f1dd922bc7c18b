"""Check a proof that no schedule of a pipeline costs less than a bound, and a schedule that meets the bound.

    python check_proof.py proof.json [schedule.json]

This file is the whole checker and needs only Python, 3.11 or later. A proof names its steps; what follows
is computed here. Exit status: 0 if all is verified, 1 if a step or the schedule fails, 2 on bad input.

The problem: each of n microbatches runs F (forward) at the stages 0 to S - 1, B (input gradient) from S - 1
down to 0, and W (weight gradient) at every stage after its B there. What takes 0 ticks is not there; a W
without B waits as a B would. A route says which device runs which stage. A device runs one operation at a
time, but an F and a fused backward BW (a B and its W) may run together where `overlapped` gives their time.
A BW alone takes `fused`, or as long as its B and W. A message to another device takes `comm`. An F takes
memory at its start; B and W, or without them the F, free it at their end. `classes` of microbatches have
times and memory of their own. Between F and backward, a copy O may free what `offload` says, at its end, and
then a copy L takes it, at its start. Beside computing, a device runs one of each at a time, or one of both
without `duplex`. The cost is the largest span of a device, from its first start to its last end, or for
`makespan` the span of all together. For `step`, an F waits for tick `ready` of its stage, a device reduces
its stages one by one after their last operations, its optimizer runs, and the cost is when all are done.
"""

import gzip
import json
import os
import re
import sys
import zlib
from array import array
from collections import Counter, namedtuple
from contextlib import suppress
from copy import copy
from fractions import Fraction
from itertools import pairwise, product, takewhile
from reprlib import repr as shown  # shortens long values
from typing import Any

FORMAT, KEYS, OWN = "tightpipe-proof-1", {"F": "forward", "B": "backward", "W": "weight"}, ("fused", "memory")
BESIDE, OPTIONAL = ("method", "cost", "bound", "copies", "params"), {"comm": 0, "placement": "v"}
OPTIONAL |= {"flush": True, "objective": "device_span", "link_occupancy": 0, "iterations": 1}
OPTIONAL |= dict.fromkeys((*OWN, "chunks", "overlapped", "step", "microbatches", "classes", "offload"))
LARGEST, LATEST, FAR, MOST_BYTES, MOST_KEYS, MOST_VALUES = 10**12, 10**15, 10**40, 2**25, 1000, 5 * 10**6
MOST_OPERATIONS, MOST_ORDERS, MOST_EFFORT, MOST_DEPTH, MOST_TIMES = 10**6, 6 * 10**6, 5 * 10**6, 100, 16
# Operations of one kind on one device that run in sequence. Their numbers are first, first + 1, ..., end - 1.
Queue = namedtuple("Queue", "device kind members place count time delta first end")
# Rules and the kinds of their arguments: item, queue, device, rank, time, structure (the rule checks it).
RULES = {"arrive": "i", "depart": "i", "walk": "r", "preceded": "is", "followed": "is", "frame": "i"}
RULES |= {"order": "ii", "chain": "iii", "memory": "iq", "pool": "iqq", "fill": "iq", "suppose": "iis"}
RULES |= {"overload": "dtsts", "progress": "dsss", "room": "d"}


class InputError(Exception):
    """A file is not of the form that this checker reads."""


class CheckError(Exception):
    """A step of a proof does not follow, or a schedule breaks a rule."""


class RefutedError(Exception):
    """The limits that a proof has derived contradict each other, so no schedule meets them all."""


def require(condition: object, text: str, error: type[Exception] = InputError) -> None:
    """Raise an error with the message `text` unless the condition holds."""
    if not condition:
        raise error(text)


def integer(value: Any, name: str, low: int = 0, high: int = LARGEST) -> int:
    """Return `value` if it is an integer from `low` to `high`, or raise an InputError that names it."""
    if type(value) is int and low <= value <= high:  # the usual case makes no text for an error
        return value
    raise InputError(f"{name}: must be an integer from {low} to {high}, is {shown(value)}")


def listed(value: Any, count: int, name: str, low: int = 0, high: int = LARGEST, there: Any = ()) -> Any:
    """Return `count` integers: of a list, or one repeated. Where `there` is false, it does not matter: 1."""
    entries = value if isinstance(value, list) else [integer(value, name, low, high)] * count
    require(len(entries) == count, f"{name}: must have {count} entries, has {len(entries)}")
    entries = [entry if here else 1 for entry, here in zip(entries, there or [1] * count, strict=True)]
    return [integer(entry, f"{name}[{k}]", low, high) for k, entry in enumerate(entries)]


def table(value: Any, name: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a copy of a JSON table if it has all required and no unknown keys, or raise an InputError."""
    require(isinstance(value, dict), f"{name}: must be a table, is {shown(value)}")
    wrong = sorted((set(value) ^ set(required)) - set(optional))
    require(not wrong, f"{name}: unknown or missing keys {shown(wrong)}, required are {', '.join(required)}")
    return dict(value)


class Problem:
    """An instance: its routes, objective, and the times and memory of each class of microbatches."""

    def __init__(self, data: Any) -> None:
        given = table(data, "instance", ("devices", *KEYS.values()), (*OPTIONAL,))
        data, classes = OPTIONAL | given, given.get("classes", [])
        require(type(classes) is list and bool(classes) == ("classes" in given), "classes: must be a list")
        classes = [table(one, "class", ("count",), (*KEYS.values(), *OWN)) for one in classes]
        self.devices = p = integer(data["devices"], "devices", 1, 1024)
        counts = [integer(one["count"], "count", 1, MOST_OPERATIONS) for one in classes]
        n = sum(counts) if counts and data["microbatches"] is None else data["microbatches"]
        self.microbatches = integer(n, "microbatches", 1, MOST_OPERATIONS)
        require(sum(counts or [n]) == n, "microbatches: must be the sum of the counts of the classes")
        self.part = [k for k, count in enumerate(counts or [n]) for _ in range(count)]  # the class of each
        self.routes = routes_of(data, p)
        self.stages = len(self.routes[0])
        require(3 * self.stages * n <= MOST_OPERATIONS, f"instance: more than {MOST_OPERATIONS} operations")
        self.iterations = integer(data["iterations"], "iterations", 1, n)
        require(n % (len(self.routes) * self.iterations) == 0, "microbatches: must divide into equal parts")
        self.flush = data["flush"]
        require(isinstance(self.flush, bool), f"flush: must be true or false, is {shown(self.flush)}")
        costs = [self.costs_of(data, one, "classes." * bool(one)) for one in ({}, *classes)]
        self.time, self.delta = zip(*costs[bool(classes) :], strict=True)
        comm = data["comm"]
        if not isinstance(comm, list):
            comm = [[integer(comm, "comm") * (i != j) for j in range(p)] for i in range(p)]
        require([*map(type, comm)] == [list] * p, f"comm: must be an integer or {p} lists of integers")
        self.comm = [listed(row, p, f"comm[{i}]") for i, row in enumerate(comm)]
        require(not any(self.comm[i][i] for i in range(p)), "comm: a device sends itself no message")
        self.together = None if data["overlapped"] is None else listed(data["overlapped"], p, "overlapped", 1)
        both = self.together, self.iterations
        require(both == (None, 1) or not classes, "classes: not together with overlapped or iterations")
        self.occupancy = integer(data["link_occupancy"], "link_occupancy")
        goal, goals = data["objective"], ("device_span", "makespan", "step")
        require(goal in goals, f"objective: must be one of {', '.join(goals)}")
        self.makespan, self.stepped = goal != "device_span", goal == "step"
        require(data["step"] is None or self.iterations == 1, "step: not together with iterations")
        sizes = {"ready": self.stages, "reduce": self.stages, "optimizer": p}
        step = {} if data["step"] is None else table(data["step"], "step", (), (*sizes,))
        step = {key: listed(step.get(key, 0), size, f"step.{key}") for key, size in sizes.items()}
        self.step = {key: [time * self.stepped for time in times] for key, times in step.items()}
        limit = None if data["memory"] is None else data["memory"]["limit"]
        self.limit = [FAR] * p if limit is None else listed(limit, p, "memory.limit")
        self.duplex = self.add_copies(data)
        block = n // self.iterations  # an iteration: its first part takes route 0, the next part route 1
        self.way = [m % block * len(self.routes) // block for m in range(n)]
        for (k, r), s in product(dict.fromkeys(zip(self.part, self.way, strict=True)), range(self.stages)):
            d = self.routes[r][s]  # which must be able to hold an F
            integer(self.limit[d], f"memory.limit[{d}]", self.delta[k]["F"][s], FAR)

    def costs_of(self, data: Any, own: Any, name: str) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Return times and memory by kind and stage: what a class has of its `own`, else those of `data`."""
        entries = {key: data[key] if own.get(key) is None else own[key] for key in (*KEYS.values(), *OWN)}
        time = {k: listed(entries[key], self.stages, name + key, k == "F") for k, key in KEYS.items()}
        apart = [b + w for b, w in zip(time["B"], time["W"], strict=True)]
        first = next((s for s in range(self.stages) if apart[s]), self.stages)
        require(all(time["B"][first + 1 :]), f"{name}backward: must be at least 1 after stage {first}")
        both = [b > 0 < w for b, w in zip(time["B"], time["W"], strict=True)]
        joint, fused = apart, entries["fused"]
        if fused is not None and any(both):
            joint = listed(fused, self.stages, f"{name}fused", 1, there=both)
        time["BW"] = [u if here else t for u, t, here in zip(joint, apart, both, strict=True)]
        memory, limit = entries["memory"], () if own.get("memory") else ("limit",)
        require(limit or data["memory"] is not None, f"{name}memory: the instance has none")
        memory = dict.fromkeys((*KEYS.values(), *limit), 0) if memory is None else memory
        table(memory, f"{name}memory", (*KEYS.values(), *limit))
        delta = {kind: listed(memory[key], self.stages, key, -LARGEST) for kind, key in KEYS.items()}
        for f, b, w, tb, tw in zip(*delta.values(), time["B"], time["W"], strict=True):
            good = f >= 0 >= max(b, w) and (tb or not b) and (tw or not w) and (f + b + w == 0 or not tb + tw)
            require(good, f"{name}memory: B and W free what F takes, and sum to 0 with it")
        return time, delta

    def add_copies(self, data: Any) -> bool:
        """Add the times of O and L, and what they free and take; return whether both may run at a time."""
        given, none = data["offload"], dict.fromkeys(("memory", "out", "back"), 0)
        require(
            given is None or (data["memory"] and self.iterations == 1), "offload: needs memory, one iteration"
        )
        given = none if given is None else table(given, "offload", (*none,), ("duplex",))
        require(isinstance(given.setdefault("duplex", True), bool), "offload.duplex: must be true or false")
        away = listed(given["memory"], self.stages, "offload.memory")
        for kind, key, sign in ("O", "out", -1), ("L", "back", 1):
            ticks = listed(given[key], self.stages, f"offload.{key}", any(away), there=away)
            for time, delta in zip(self.time, self.delta, strict=True):
                for s, m in enumerate(away):
                    integer(m, f"offload.memory[{s}]", 0, delta["F"][s] * (time["BW"][s] > 0))
                time[kind] = [t * (m > 0) for t, m in zip(ticks, away, strict=True)]
                delta[kind] = [sign * m for m in away]
        return bool(given["duplex"]) or not any(away)

    def resident(self, k: int) -> dict[str, list[int]]:
        """Return the memory of class k where what may leave is always away; no schedule holds less.

        Of what F adds, f, let m leave. From F's start to B's start a device holds f or f - m, during B f, and
        then what W frees, until W ends. Here F adds f - m, and B frees m less; where that makes B add
        something, it does so at its start. A W without B is as a B.
        """
        away, first = self.delta[k]["L"], ["B" if b else "W" for b in self.time[k]["B"]]
        rows = zip(*(self.delta[k][kind] for kind in KEYS), away, first, strict=True)
        found = [(f - m, b + m * (kind == "B"), w + m * (kind == "W"), m) for f, b, w, m, kind in rows]
        return dict(zip("FBWL", map(list, zip(*found, strict=True)), strict=True))

    def split(self, long: Any) -> "Problem":
        """Return a problem whose BW takes no less than its B and W; no schedule costs more in it.

        With B, W and BW of b, w and u ticks, take any b' <= b and w' <= w with b' + w' <= u. A single B or W
        becomes a B' or W' that starts with it, a BW a B' and a W' within its time. So nothing ends, no result
        arrives, and no memory is freed later. The one of B and W named `long` is as long as it can be.
        """
        found, rest, good = copy(self), "W" if long == "B" else "B", long in ("B", "W")
        found.time = ()
        for time in self.time if good else ():
            joint = [u if b and w else FAR for b, w, u in zip(*map(time.get, ("B", "W", "BW")), strict=True)]
            kept = [min(t, u - 1) for t, u in zip(time[long], joint, strict=True)]
            left = [min(t, u - k) for t, u, k in zip(time[rest], joint, kept, strict=True)]
            good = good and min(joint) > 1
            found.time += (time | {long: kept, rest: left},)
        require(good, "long: B or W, and no fused BW is a single tick")
        return found


def routes_of(data: dict[str, Any], p: int) -> list[list[int]]:
    """Return the routes on p devices, one per direction of travel: each lists the device of every stage."""
    name, usual = data["placement"], {"linear": 1, "v": 2, "loop": 2, "wave": 4, "bidirectional": 1}
    require(isinstance(name, str) and name in usual, f"placement: unknown, {shown(name)}")
    lengths = [len(data[key]) for key in KEYS.values() if isinstance(data[key], list)]
    implied = name in ("loop", "wave") and lengths and lengths[0] % p == 0 and lengths[0] >= 2 * p
    chunks = (lengths[0] // p if implied else usual[name]) if data["chunks"] is None else data["chunks"]
    integer(chunks, "chunks", 1, MOST_OPERATIONS // (3 * p))
    good = {"v": chunks == 2, "wave": chunks % 2 == 0, "bidirectional": chunks == 1 and p % 2 == 0}
    require(good.get(name, True), f"chunks: the placement {name} of {p} devices has no {chunks} per device")
    there, back = list(range(p)), list(reversed(range(p)))
    down = {"linear": [s // chunks for s in range(p * chunks)], "loop": there * chunks}
    return [there, back] if name == "bidirectional" else [down.get(name, (there + back) * (chunks // 2))]


def cost_of(problem: Problem, devices: Any, copies: Any = None) -> int:
    """Return the cost of a schedule, given by the entries of each device, after checking every rule."""
    copies, p = [[]] * problem.devices if copies is None else copies, problem.devices
    good = all(isinstance(part, list) and [*map(type, part)] == [list] * p for part in (devices, copies))
    require(good, f"schedule: must list the operations of {p} devices")
    times, spans = dict[Any, Any](), list[tuple[int, int]]()  # times are by kind, stage and microbatch
    for d, both in enumerate(zip(devices, copies, strict=True)):
        slots = sorted(
            (slot_of(problem, entry) for part in both for entry in part), key=lambda slot: slot[1:]
        )
        require(slots, f"device {d} runs nothing", CheckError)
        spans.append((slots[0][1], check_device(problem, d, slots, times)))
    there = [sum(t > 0 for kind in KEYS for t in time[kind]) for time in problem.time]
    found = sum(kind in KEYS for kind, *_ in times)
    require(found == sum(there[k] for k in problem.part), "operations are missing", CheckError)
    check_dependencies(problem, times)
    first = 0 if problem.stepped else min(spans)[0]
    return max(end - (first if problem.makespan else start) for start, end in spans)


def slot_of(problem: Problem, entry: Any) -> tuple[Any, int, int]:
    """Return the operations of an entry such as ["F0.1+BW2.3", 5, 9], and its start and end."""
    if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str)):
        raise InputError(f"schedule: {shown(entry)} must be [operation, start, end]")
    found = [re.fullmatch(r"(BW|[FBWOL])([0-9]{1,7})\.([0-9]{1,7})", word) for word in entry[0].split("+", 2)]
    words = tuple((word[1], int(word[2]), int(word[3])) for word in found if word)
    known = [s < problem.stages and m < problem.microbatches for _, s, m in words]
    require(known == [True] * len(found), f"schedule: the instance has no operation {entry[0]!r:.40}")
    return words, integer(entry[1], "start", 0, LATEST), integer(entry[2], "end", 0, LATEST)


def check_device(problem: Problem, d: int, slots: list[Any], times: dict[Any, Any]) -> int:
    """Check the rules that device d's (operations, start, end) obey; fill `times`, return when d is done."""
    events, running, free, done, ends = [], [0], Counter[str](), 0, dict[int, int]()
    for words, start, end in slots:
        kinds = [kind for kind, _, _ in words]
        together = len(kinds) == 1 or kinds in (["F", "B"], ["F", "BW"])
        require(together, f"{words}: only an F and a B or BW run together", CheckError)
        engine = kinds[0] * (kinds[0] in "OL") if problem.duplex else str(kinds[0] in "OL")
        require(start >= free[engine], f"device {d}: two operations run at tick {start}", CheckError)
        due, free[engine] = 0, end
        for kind, s, m in words:
            time, delta = problem.time[problem.part[m]], problem.delta[problem.part[m]]
            due += time[kind][s]
            require(problem.routes[problem.way[m]][s] == d, f"{kind}{s}.{m} is on a wrong device", CheckError)
            require(start >= problem.step["ready"][s] * (kind == "F"), f"F{s}.{m} is not ready", CheckError)
            ends[s] = end
            running.append(m * problem.iterations // problem.microbatches if problem.flush else 0)
            require(running[-1] >= running[-2], f"{kind}{s}.{m} runs after a flush", CheckError)
            for part in kind:
                require(time[part][s], f"there is no {part}{s}.{m}", CheckError)
                require((part, s, m) not in times, f"{part}{s}.{m} runs twice", CheckError)
                times[part, s, m] = start, end, kind
                events.append((start if part in "FL" else end, delta[part][s]))
            events += [(end, -delta["F"][s])] * (not time["BW"][s])  # nothing else frees it
        if problem.together is not None and kinds == ["F", "BW"]:
            due = problem.together[d]
        require(end - start == due, f"{words} takes {end - start} ticks, not {due}", CheckError)
    used = 0
    for time, change in sorted(events):  # at equal times what is freed comes first
        used += change
        require(change <= 0 or used <= problem.limit[d], f"device {d} holds {used} at {time}", CheckError)
    for end, s in sorted((end, s) for s, end in ends.items()):
        done = max(done, end) + problem.step["reduce"][s]
    return int(done + problem.step["optimizer"][d])


def check_dependencies(problem: Problem, times: dict[Any, Any]) -> None:
    """Check that operations wait until the results that they need arrive, and messages for busy links."""
    links: dict[tuple[int, int], list[tuple[int, bool, int]]] = {}
    for (kind, s, m), (start, _, named) in times.items():
        before = (kind, s - 1, m) if kind == "F" else ("B", s + (kind == "B" or ("B", s, m) not in times), m)
        before = ("F", s, m) if before[1] == problem.stages else before
        if kind in "OL":
            path = [times.get((k, s, m)) for k in ("F", "O", "L", "B" if ("B", s, m) in times else "W")]
            good = all(one and two and one[1] <= two[0] for one, two in pairwise(path))
            require(good, f"F, O, L and backward {s}.{m} do not run in sequence", CheckError)
        if before[1] < 0 or (kind == "W" and named == "BW") or kind in "OL":
            continue
        route = problem.routes[problem.way[m]]
        sent, here, there = times[before][1], route[before[1]], route[s]
        require(start >= sent + problem.comm[here][there], f"{kind}{s}.{m} starts too early", CheckError)
        if here != there:
            links.setdefault((here, there), []).append((sent, before[0] == "B", start))
    for (here, there), messages in links.items():
        free = 0
        for sent, _, start in sorted(messages):  # messages leave in the sequence in which they were made
            due, free = max(sent, free) + problem.comm[here][there], max(sent, free) + problem.occupancy
            require(start >= due, f"a message from {here} to {there} is late at {start}", CheckError)


def carried(trips: list[tuple[int, int, int]], room: int) -> Fraction:
    """Return the most that (number, what each saves, ticks) save in a room, by the best price of a tick."""
    prices = [Fraction(0), *(Fraction(saved, ticks) for _, saved, ticks in trips)]
    paid = ((p, sum(n * max(Fraction(0), v - p * t) for n, v, t in trips)) for p in prices)
    return min(p * max(0, room) + more for p, more in paid)


def ramp(rates: list[tuple[int, int]], limit: int) -> tuple[Fraction, Fraction]:
    """Return how long memory rises to the limit, one operation at a time, and what stays empty meanwhile."""
    steepest = max(Fraction(*rate) for rate in rates)
    left = max(0, limit - max(memory for memory, _ in rates))
    return (left / steepest, left**2 / (2 * steepest)) if steepest else (Fraction(0), Fraction(0))


class Windows:
    """What holds in every schedule of cost at most a target T, as far as the steps of a proof have shown.

    Microbatches of equal route, times and memory, a *class*, are alike, so the operations of a schedule may
    be renamed: the k-th one of each kind, stage and class goes to its k-th microbatch, and still comes after
    those it needs. W's of one device with equal time and memory are alike, too: the l-th may follow the l-th
    B of their stages. So some schedule of equal cost runs such operations, the *items* of a *queue*, in
    sequence; a *rank* is a place in it, from 0. A BW counts as B, then W, a W without B as a B. Left out are
    flushes, busy links, and memory of an F without B and W, and of what may leave (`resident`). Refused are
    `overlapped`, and a `fused` shorter than B and W (see `split`). For `step`, time 0 is where stage 0 is
    ready. The reduction of a stage (of a queue of W's the least) and then the optimizer end by T as well.

    A *frame* is an interval of length T with all operations of a device, from its first start on; for the
    makespan all devices share one. Time 0 is where the frame of device `anchor` starts. In its frame a device
    idles for T less its work. Each item has a least and a largest start, `early` and `late`. For an item and
    a queue of its device, `low` is the number of items there that surely precede the item, and `high` the
    first rank that surely follows it. Rules only narrow values; `RefutedError` is raised where they cross.
    """

    def __init__(self, problem: Problem, target: int, anchor: int) -> None:
        require(problem.together is None, "windows do not hold with operations that overlap", CheckError)
        backwards = (zip(time["B"], time["W"], time["BW"], strict=True) for time in problem.time)
        whole = all(b + w <= both for stages in backwards for b, w, both in stages)
        require(whole, "a fused BW is shorter than its B and W, and the proof has no `long`", CheckError)
        self.problem, self.depth, self.effort = problem, 0, 0
        classes = dict[Any, Any]()  # route, times, memory and number of the microbatches of each class
        for (k, r), more in Counter(zip(problem.part, problem.way, strict=True)).items():
            costs = problem.time[k], problem.resident(k)
            key = r, *(tuple(of[kind]) for of in costs for kind in KEYS)
            classes[key] = (r, *costs, more + (classes[key][3] if key in classes else 0))
        self.classes = list(classes.values())
        self.held: list[list[tuple[int, int]]] = [[] for _ in range(problem.devices)]  # class and stage
        for (k, (r, *_)), s in product(enumerate(self.classes), range(problem.stages)):
            self.held[problem.routes[r][s]].append((k, s))
        self.width = 3 * max(map(len, self.held))  # at least the number of queues of each device
        orders = self.width * 3 * problem.stages * problem.microbatches
        require(orders <= MOST_ORDERS, "instance: too large for this checker")
        last = 4 * problem.stages - 2  # places on a microbatch's path: even for F's and B's, odd for W's
        self.place = {"F": range(0, last, 2), "B": range(last, 0, -2), "W": range(last + 1, 0, -2)}
        self.trail, self.past, self.queues = list[Any](), array("q"), list[Queue]()
        self.on = [self.add_queues(d) for d in range(problem.devices)]
        self.link_queues()
        rows = ((u, self.classes[u.members[0][0]][2]["L"][u.members[0][1]]) for u in self.queues)
        self.takes = [{"F": u.delta, "B": away, "W": 0}[u.kind] for u, away in rows]  # memory, at the start
        self.local = [q - self.on[queue.device][0] for q, queue in enumerate(self.queues)]
        ready, reduce, optimizer = problem.step.values()
        heads = [max(0, ready[u.members[0][1]] - ready[0]) * (u.kind == "F") for u in self.queues]
        tails = [optimizer[u.device] + min(reduce[s] for _, s in u.members) for u in self.queues]
        target -= ready[0] + min(tails)
        self.idle = [target - sum(self.queues[q].time * self.queues[q].count for q in on) for on in self.on]
        require(min(self.idle) >= 0, "a device has more work than time", RefutedError)
        # One of two devices runs between two operations of the other, so their frames start at most T apart.
        # Without a backward at stage 0, those that start when others have ended and sent may start at once.
        returns, far = any(time["BW"][0] for time in problem.time), target + max(map(max, problem.comm))
        far = target if returns else problem.devices * far
        self.frame_late = [0 if problem.makespan or d == anchor else far for d in range(problem.devices)]
        self.frame_early = [-time for time in self.frame_late]
        self.queue = array("i", [q for q, queue in enumerate(self.queues) for _ in range(queue.count)])
        self.ticks = array("q", [self.queues[q].time for q in self.queue])
        begin, after = [self.frame_early[u.device] for u in self.queues], target + min(tails)
        self.early = array("q", [begin[q] + heads[q] for q in self.queue])
        self.late = array("q", [after - tails[q] - begin[q] - self.queues[q].time for q in self.queue])
        self.low, self.high = array("i", [0]) * orders, array("i", [0]) * orders
        for q, queue in enumerate(self.queues):
            for k, r in enumerate(self.on[queue.device]):
                leads, follows = self.leads(r, q), self.leads(q, r)
                for rank in range(queue.count):
                    at = self.width * (queue.first + rank) + k
                    self.low[at] = rank + (r != q) if leads else 0
                    self.high[at] = rank + (r == q) if follows else self.queues[r].count

    def charge(self, work: int) -> None:
        """Count elementary operations before they are done, and refuse a proof of too many."""
        self.effort += work
        require(self.effort <= MOST_EFFORT, "steps: too much work")

    def add_queues(self, d: int) -> list[int]:
        """Add queues of device d for the F's and B's of each class and stage, and for alike W's."""
        before, alike = len(self.queues), dict[Any, list[tuple[int, int]]]()
        for kind, (k, s) in product("FBW", self.held[d]):
            _, time, delta, _ = self.classes[k]
            own = (time["W"][s], delta["W"][s]) if kind == "W" and time["B"][s] else (kind, k, s)
            if time[kind][s]:
                alike.setdefault((kind, own), []).append((k, s))
        for (kind, _), members in alike.items():
            first, (k, s) = self.queues[-1].end if self.queues else 0, members[0]
            (_, time, delta, _), end = self.classes[k], first + sum(self.classes[k][3] for k, _ in members)
            named = "B" if kind == "W" and not time["B"][s] else kind
            of = self.place[named][s], end - first, time[kind][s], delta[kind][s] * (time["BW"][s] > 0)
            self.queues.append(Queue(d, named, members, *of, first, end))
        return list(range(before, len(self.queues)))

    def link_queues(self) -> None:
        """Find which queue waits for which, item by item, and the least ticks from start to start."""
        self.at = {(r, self.place[u.kind][s]): q for q, u in enumerate(self.queues) for r, s in u.members}
        self.path = sorted(range(len(self.queues)), key=lambda q: self.queues[q].place)
        self.leaders, self.followers = ([list[tuple[int, int]]() for _ in self.queues] for _ in range(2))
        self.sources = [[self.at.get((k, self.place["B"][s]), -1) for k, s in u.members] for u in self.queues]
        for q, queue in enumerate(self.queues):
            before = self.at.get((queue.members[0][0], queue.place - (1 if queue.kind == "W" else 2)))
            if len(queue.members) == 1 and before is not None:
                leader = self.queues[before]
                lag = leader.time + self.problem.comm[leader.device][queue.device]
                self.leaders[q].append((leader.first - queue.first, lag))
                self.followers[before].append((queue.first - leader.first, lag))

    def leads(self, q: int, r: int) -> bool:
        """Return whether q is r, or item k of q is before item k of r on a microbatch's path, for all k."""
        one, two = self.queues[q], self.queues[r]
        same = one.members[0][0] == two.members[0][0] and len(two.members) == 1 and one.kind != "W"
        return q == r or (same and one.place < two.place)

    def narrow(self, lower: Any, upper: Any, at: int, least: int = -FAR, most: int = FAR) -> None:
        """Limit lower[at], upper[at] to `least` ... `most`; within `suppose`, the trail keeps old values."""
        self.charge(5 if self.depth else 1)
        least, most = max(least, lower[at]), min(most, upper[at])
        require(least <= most, "values cross", RefutedError)
        if self.depth:
            self.trail += (lower, upper)
            self.past.extend((at, lower[at], upper[at]))
        lower[at], upper[at] = least, most

    def take_back(self, mark: int) -> None:
        """Undo what has been narrowed since the trail had the length `mark`."""
        while len(self.trail) > mark:
            upper, lower = self.trail.pop(), self.trail.pop()
            high, low, at = (self.past.pop() for _ in range(3))
            lower[at], upper[at] = low, high

    def precede(self, a: int, b: int) -> None:
        """Enter that item a and all before it in its queue precede item b and all behind it in its queue."""
        one, two = self.queues[self.queue[a]], self.queues[self.queue[b]]
        require(one.device == two.device, f"items {a} and {b} run on different devices")
        require(a != b, f"item {a} cannot precede itself", CheckError)
        require(one is not two or a < b, "a queue runs backwards", RefutedError)
        k, own, w = self.local[self.queue[a]], self.local[self.queue[b]], self.width
        least, most = a - one.first + 1, b - two.first
        for at in takewhile(lambda at: self.low[at] < least, range(w * b + k, w * two.end, w)):
            self.narrow(self.low, self.high, at, least=least)
        for at in takewhile(lambda at: self.high[at] > most, range(w * a + own, w * one.first - 1, -w)):
            self.narrow(self.low, self.high, at, most=most)

    def count(self, i: int, q: int, least: int = -FAR, most: int = FAR) -> None:
        """Limit the number of items of q that precede item i of the same device to `least` ... `most`."""
        queue = self.queues[q]
        require(least <= queue.count and most >= 0, "there are not so many", RefutedError)
        if least > 0:
            self.precede(queue.first + least - 1, i)
        if most < queue.count:
            self.precede(i, queue.first + most)

    def orders(self, i: int) -> dict[int, tuple[int, int]]:
        """Return (low, high) for each queue of item i's device; for i's own queue: rank, rank + 1."""
        on, at = self.on[self.queues[self.queue[i]].device], self.width * i
        return {q: (self.low[at + k], self.high[at + k]) for k, q in enumerate(on)}

    def arrive(self, i: int) -> None:
        """Raise i's least start: on its microbatch's path, the item before ends and its message arrives."""
        for shift, lag in self.leaders[self.queue[i]]:
            self.narrow(self.early, self.late, i, least=self.early[i + shift] + lag)

    def depart(self, i: int) -> None:
        """Lower i's largest start: on its microbatch's path, the item behind it must still start in time."""
        for shift, lag in self.followers[self.queue[i]]:
            self.narrow(self.early, self.late, i, most=self.late[i + shift] - lag)

    def walk(self, rank: int) -> None:
        """Apply `arrive` to the items of one rank along their microbatches' paths, `depart` backwards."""
        self.charge(len(self.queues))
        for rule, queues in ((self.arrive, self.path), (self.depart, self.path[::-1])):
            for queue in (self.queues[q] for q in queues if rank < self.queues[q].count):
                rule(queue.first + rank)

    def preceded(self, i: int, ranks: Any) -> None:
        """Raise i's least start: its sure predecessors from `ranks` on (`cut`) run before it, one by one."""
        rows = [(self.queues[q], r, low) for q, low, _, r in self.cut(i, ranks) if r < low]
        require(rows, f"item {i} has no predecessor there", CheckError)
        begin = min(self.early[queue.first + r] for queue, r, _ in rows)
        self.narrow(self.early, self.late, i, begin + sum(queue.time * (low - r) for queue, r, low in rows))

    def followed(self, i: int, ranks: Any) -> None:
        """Lower i's largest start: its sure followers below `ranks` (`cut`) run after it, one by one."""
        rows = [(self.queues[q], high, r) for q, _, high, r in self.cut(i, ranks) if high < r]
        require(rows, f"item {i} has no follower there", CheckError)
        end = max(self.late[queue.first + r - 1] + queue.time for queue, _, r in rows)
        end -= sum(queue.time * (r - high) for queue, high, r in rows)
        self.narrow(self.early, self.late, i, most=end - self.ticks[i])

    def cut(self, i: int, ranks: Any) -> list[tuple[int, int, int, int]]:
        """Return (queue, low, high, rank) for each queue of item i's device; `ranks` has a rank for each."""
        orders = self.orders(i)
        require(isinstance(ranks, list) and len(ranks) == len(orders), "ranks: one per queue")
        rows = zip(orders.items(), ranks, strict=True)
        return [(q, *known, integer(r, "rank", 0, self.queues[q].count)) for (q, known), r in rows]

    def frame(self, i: int) -> None:
        """Limit the starts of i and its frame: i's predecessors run between, and idling is at most `idle`."""
        d, least, slack = self.reach(i)
        self.narrow(self.frame_early, self.frame_late, d, self.early[i] - slack, self.late[i] - least)
        self.narrow(self.early, self.late, i, self.frame_early[d] + least, self.frame_late[d] + slack)

    def reach(self, i: int) -> tuple[int, int, int]:
        """Return item i's device and the least and most ticks from its frame's start to the item's start."""
        own, orders = self.queues[self.queue[i]], self.orders(i)
        least = sum(self.queues[q].time * low for q, (low, _) in orders.items())
        most = sum(self.queues[q].time * high for q, (_, high) in orders.items()) - own.time
        # If there is one class, all else on a device waits for one F, so the device's frame begins with it.
        opens = len(self.classes) == 1 and not self.problem.makespan and i == own.first
        opens = opens and own.kind == "F" and own.members == self.held[own.device][:1]
        return own.device, least, 0 if opens else self.idle[own.device] + most

    def order(self, a: int, b: int) -> None:
        """Enter that item a precedes b, after checking that b cannot end before a must start."""
        require(self.early[b] + self.ticks[b] > self.late[a], f"items {a}, {b} have no order", CheckError)
        self.precede(a, b)

    def chain(self, a: int, b: int, c: int) -> None:
        """Enter that item a precedes c, after checking that a surely precedes b, and b surely precedes c."""
        for one, two in ((a, b), (b, c)):
            low, _ = self.orders(two).get(self.queue[one], (0, 0))
            require(low > one - self.queues[self.queue[one]].first, f"{one} may follow {two}", CheckError)
        self.precede(a, c)

    def memory(self, i: int, q: int) -> None:
        """Limit how many of queue q precede item i, an F or a B with copies, by what i finds held."""
        own, orders, takes = self.queues[self.queue[i]], self.orders(i), self.takes[self.queue[i]]
        good = takes and q in orders and q != self.queue[i] and self.queues[q].delta
        require(good, f"memory says nothing about item {i} and queue {q}")
        low, high = orders[q]
        orders[self.queue[i]] = (i - own.first,) * 2
        # What takes memory and has begun holds it, only what has ended freed any. The least held leaves a
        # slack below the limit. Each further F before i uses some, and so does each B or W not put before i.
        deltas = [(self.queues[r].delta, orders[r]) for r in orders]
        slack = self.problem.limit[own.device] - takes - sum(delta * n[delta < 0] for delta, n in deltas)
        require(slack >= 0, "too much memory is held", RefutedError)
        more = slack // abs(self.queues[q].delta)
        self.count(i, q, *((-FAR, low + more) if self.queues[q].delta > 0 else (high - more, FAR)))

    def pool(self, i: int, q: int, r: int) -> None:
        """Limit W's by B's: at no time has queue q run more W's than the stages of these W's have run B's."""
        own, orders = self.queue[i], self.orders(i)
        good = q in orders and self.queues[q].kind == "W" and r in (q, *self.sources[q]) and own != r
        require(good, f"queue {q} says nothing about item {i} and queue {r}")
        most = {b: orders[b][b != own] for b in self.sources[q]}
        if r == q:  # the W's before item i, else the B's before it
            self.count(i, q, most=sum(most.values()))
        else:
            self.count(i, r, least=orders[q][0] + (own == q) - sum(most.values()) + most[r])

    def fill(self, i: int, q: int) -> None:
        """Limit items of q before i: work between frame start and i fits, and leaves at most `idle` ticks."""
        (d, least, _), orders, time = self.reach(i), self.orders(i), self.queues[q].time
        require(q in orders and q != self.queue[i], f"queue {q} has no order with item {i}")
        room = self.late[i] - self.frame_early[d] - least
        most = sum(self.queues[r].time * orders[r][r != self.queue[i]] for r in orders)
        spare = most + self.idle[d] - self.early[i] + self.frame_late[d]
        require(room >= 0 and spare >= 0, "the work does not fit", RefutedError)
        self.count(i, q, orders[q][1] - spare // time, orders[q][0] + room // time)

    def suppose(self, a: int, b: int, steps: Any) -> None:
        """Conclude that item b precedes a, after checking that the steps refute that a precedes b."""
        mark, self.depth = len(self.trail), self.depth + 1
        with suppress(RefutedError):
            self.precede(a, b)
            self.run(steps)
            raise CheckError(f"that item {a} precedes {b} leads to no contradiction")
        self.depth -= 1
        self.take_back(mark)
        self.precede(b, a)

    def overload(self, d: int, t1: int, first: Any, t2: int, second: Any) -> None:
        """Show that device d has more work from t1 to t2 than ticks; both times have counts as in `least`."""
        self.progress(d, [t1, t2], [first, second], [1])

    def progress(self, d: int, times: Any, counts: Any, weights: Any) -> None:
        """Show that the queues of device d would have to progress more between the given times than they can.

        P(q, t), the progress of queue q by time t, is for how many ticks its items have run by then. It never
        falls, and from times[j] to times[j + 1] all P of d together rise by at most the ticks between. With
        w = weights[j], the sum of w[q] P(q, t) rises by at most these ticks times the larger of 0 and max(w).
        Add this up over j: P(q, times[j]) is left with the factor `weights[j - 1][q] - weights[j][q]`. If the
        least possible values of these terms (`least`) sum to more than all rises, there is no schedule.
        """
        good = all(isinstance(part, list) for part in (times, counts, weights))
        good = good and len(times) == len(counts) == len(weights) + 1 <= MOST_TIMES
        require(good, f"progress: up to {MOST_TIMES} times, counts for each, and weights between them")
        width, room, need = len(self.on[d]), 0, 0
        times = listed(times, len(times), "times", -LATEST, LATEST)
        rows = [listed(row, width, "weights", -LATEST, LATEST) for row in (0, *weights, 0)]
        for past, t, about, old, new in zip(times[:1] + times, times, counts, rows, rows[1:], strict=False):
            require(past <= t, f"tick {past} is not before {t}", CheckError)
            room += (t - past) * max(0, *old)
            need += self.least(d, t, about, [before - after for before, after in zip(old, new, strict=True)])
        require(need > room, f"device {d} has {room - need} ticks to spare after tick {times[0]}", CheckError)
        raise RefutedError

    def room(self, d: int) -> None:
        """Show that what device d has to hold, less what its copies can take away, does not fit its memory.

        An F holds its memory until its backward ends, with a path through later stages between, a W its own
        while it runs. What leaves is away for the time of the path less both copies; in a longer one, more is
        held than is saved. An engine makes its copies one by one, between the first F and the last backward
        with the shortest copy of the other kind. In both `ramps`, memory stays empty.
        """
        since, trips, takes, frees, need = [0] * len(self.queues), list[Any](), [], [], Fraction(0)
        self.charge(len(self.queues) + len(self.on[d]) ** 2)
        for q in self.path:
            for shift, lag in self.leaders[q]:
                since[q] = since[self.queue[self.queues[q].first + shift]] + lag
        for k, s in self.held[d]:
            f, b, w = (self.at.get((k, self.place[kind][s]), -1) for kind in "FBW")
            own, (_, time, delta, _) = self.queues[f], self.classes[k]
            held, away, out, back = delta["F"][s] + delta["L"][s], delta["L"][s], time["O"][s], time["L"][s]
            takes.append((held, own.time))
            frees += [(held, own.time)] * (b < 0)
            if w >= 0:
                need -= own.count * time["W"][s] * delta["W"][s]
                frees.append((-delta["W"][s], time["W"][s]))
            if b >= 0:
                last, hold = self.queues[b], since[b] - since[f] - own.time
                need += own.count * held * (own.time + hold + last.time)
                frees.append((away - last.delta, last.time))
                begins = self.early[own.first] + own.time, self.late[last.end - 1]
                trips += [(own.count, away * max(0, hold - out - back), out, back, *begins)] * (away > 0)
        if trips:
            *saved, outs, backs, starts, ends = zip(*trips, strict=True)
            length, both = max(ends) - min(starts), [*map(sum, zip(outs, backs, strict=True))]
            rooms: Any = [(outs, length - min(backs)), (backs, length - min(outs)), (both, length)]
            rooms = rooms[:2] if self.problem.duplex else rooms[2:]
            need -= min(carried([*zip(*saved, ticks, strict=True)], room) for ticks, room in rooms)
        rows, limit = [self.queues[q] for q in self.on[d]], self.problem.limit[d]
        ticks = max(self.late[u.end - 1] + u.time for u in rows) - min(self.early[u.first] for u in rows)
        ramps = [ramp(rates, limit) for rates in (takes, frees)]
        need += sum(empty for _, empty in ramps) * (sum(long for long, _ in ramps) <= ticks)
        require(need > limit * ticks, f"device {d} has room for what it holds", CheckError)
        raise RefutedError

    def least(self, d: int, t: int, counts: Any, factors: list[int]) -> int:
        """Return the least sum, over the queues of a device, of a factor times the progress by t in ticks.

        Four counts for each queue say how many items have surely ended by t, can have ended, have surely
        begun before t, and can have begun; one item's window proves each. At most one operation runs at t,
        and has progressed by none or all of its ticks at worst. F's that have begun hold their memory, only
        B's and W's that have ended changed theirs, and every W that has begun follows a B that has ended.
        Queues of one kind all count with the least (factor times ticks) and the least delta among them.
        """
        require(isinstance(counts, list) and len(counts) == len(self.on[d]), "counts: one row per queue")
        rows = {}
        for q, row in zip(self.on[d], counts, strict=True):
            first, count, time = self.queues[q].first, self.queues[q].count, self.queues[q].time
            rows[q] = listed(row, 4, "counts", 0, count)
            for (sure, may), until in ((rows[q][:2], t - time), (rows[q][2:], t - 1)):
                good = not sure or self.late[first + sure - 1] <= until
                good = good and (may == count or self.early[first + may] > until)
                require(good, f"counts: those of queue {q} are not shown at tick {t}", CheckError)
        each = {q: factor * self.queues[q].time for q, factor in zip(rows, factors, strict=True)}
        sums = (value for running in (None, *rows) for value in self.sums(d, rows, running, each))
        found: int = min(sums, default=FAR)
        require(found < FAR, "no counts are possible", RefutedError)
        return found

    def sums(self, d: int, rows: Any, running: Any, each: dict[int, int]) -> Any:
        """Yield the least sum per number of ended B's if queue `running` runs; items of q add each[q]."""
        self.charge(3 * len(rows))
        runs, held = ("", 0) if running is None else (self.queues[running].kind, self.takes[running])
        ranges = [
            (q, max(ended, begun - (q == running)), min(may_end, may_begin - (q == running)))
            for q, (ended, may_end, begun, may_begin) in rows.items()
        ]
        if any(low > high for _, low, high in ranges):
            return
        of = {kind: [entry for entry in ranges if self.queues[entry[0]].kind == kind] for kind in "FBW"}
        base = {kind: sum(low for _, low, _ in of[kind]) for kind in "FBW"}
        spare = {kind: sum(high - low for _, low, high in of[kind]) for kind in "FBW"}
        free = {kind: min((self.queues[q].delta for q, _, _ in of[kind]), default=0) for kind in "FBW"}
        cost = {kind: min((each[q] for q, _, _ in of[kind]), default=0) for kind in "FBW"}
        used = sum(low * self.queues[q].delta for q, low, _ in ranges) + held
        sure = sum(low * each[q] for q, low, _ in ranges) + min(0, each.get(running, 0))
        self.charge(spare["B"] + 1)
        for b in range(spare["B"] + 1):
            room = self.problem.limit[d] - used - b * free["B"]
            w = min(spare["W"], base["B"] + b - base["W"] - (runs == "W"))
            need = -(room // -free["W"]) if room < 0 and free["W"] else 0
            if need <= w and room - need * free["W"] >= 0:
                f = min(spare["F"], (room - w * free["W"]) // free["F"]) if free["F"] else spare["F"]
                yield sure + b * cost["B"] + min(need * cost["W"], w * cost["W"]) + min(0, f * cost["F"])

    def run(self, steps: Any) -> None:
        """Apply the steps of a proof, each of which is the name of a rule and its arguments."""
        require(isinstance(steps, list), "steps: must be a list")
        require(self.depth <= MOST_DEPTH, f"steps: suppositions are more than {MOST_DEPTH} deep")
        ends = {"i": len(self.queue), "q": len(self.queues), "d": len(self.on), "r": len(self.problem.part)}
        for step in steps:
            if not (isinstance(step, list) and step and isinstance(step[0], str) and step[0] in RULES):
                raise InputError(f"steps: unknown step {shown(step)}")
            self.charge(self.width)
            shape = RULES[step[0]]
            require(len(step) == len(shape) + 1, f"steps: {step[0]} must have {len(shape)} arguments")
            for kind, value in ((k, v) for k, v in zip(shape, step[1:], strict=True) if k != "s"):
                integer(value, f"steps: {step[0]}", -LATEST * (kind == "t"), ends.get(kind, LATEST) - 1)
            getattr(self, step[0])(*step[1:])


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON table, or raise an InputError if a key stands in it twice."""
    twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    require(not twice, f"keys stand twice: {shown(twice)}")
    return dict(pairs)


def read(path: str, most: int = MOST_VALUES) -> Any:
    """Return the content of a JSON file of `most` values; with the suffix .gz, gzip has compressed it."""
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
        require(len(text) <= MOST_BYTES, f"more than {MOST_BYTES} bytes")
        values = sum(map(text.count, (b",", b"[", b"{")))  # counted before they take memory
        require(values <= most and text.count(b":") <= MOST_KEYS, f"more than {most} values, or keys")
        return json.loads(text.decode("utf-8-sig"), object_pairs_hook=unique)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, InputError) as error:
        name = path if path.isprintable() else ascii(path)[1:-1]
        raise InputError(f"{name}: cannot be read as JSON: {error}") from None


def check(content: Any, schedule: Any = None) -> str:
    """Return one line that says what the contents of the files prove."""
    data = table(content, "proof file", ("format", "instance", "bound", "proof"))
    require(data["format"] == FORMAT, f"format: this checker reads '{FORMAT}', not {shown(data['format'])}")
    problem, bound = Problem(data["instance"]), integer(data["bound"], "bound", 1, LATEST)
    proof = table(data["proof"], "proof", ("kind",), ("by", "anchor", "steps", "long"))
    by = f"the bound {bound} rests on {shown(proof.get('by'))}, which has no proof here"
    require(proof["kind"] != "trusted", by, CheckError)
    require(proof["kind"] == "windows", f"proof: unknown kind {shown(proof['kind'])}")
    anchor = integer(proof.get("anchor"), "anchor", 0, problem.devices - 1)
    with suppress(RefutedError):  # which is what the steps should lead to
        about = problem.split(proof["long"]) if "long" in proof else problem
        Windows(about, bound - 1, anchor).run(proof.get("steps"))
        raise CheckError("the steps of the proof lead to no contradiction")
    if schedule is None:
        return f"verified: no schedule costs less than {bound}"
    data = table(schedule, "schedule file", ("instance", "devices"), BESIDE)
    require(isinstance(data.get("method"), str | None), "method: must be a text")
    for key in (key for key in ("cost", "bound") if data.get(key) is not None):
        integer(data[key], key, -LATEST, LATEST)
    require(vars(Problem(data["instance"])) == vars(problem), "schedule: has another instance than the proof")
    cost = cost_of(problem, data["devices"], data.get("copies"))
    require(cost >= bound, f"the schedule costs {cost}, below the bound {bound}", CheckError)
    gap = f"within {100 * (cost / bound - 1):.3f} % of optimal, as no schedule costs less than {bound}"
    return f"verified: cost {cost} is {'optimal' if cost == bound else gap}"


def main(arguments: list[str], say: Any = print) -> int:
    """Run the checker, `say` one line, and return the exit status."""
    try:
        require(1 <= len(arguments) <= 2, "usage: python check_proof.py proof.json [schedule.json]")
        say(check(*map(read, arguments, (MOST_VALUES // 3, MOST_VALUES))))  # the schedule is the larger one
        return 0
    except BrokenPipeError:
        return 141  # as a program that the signal SIGPIPE has ended: nobody reads the line
    except (CheckError, InputError, OSError, RecursionError, MemoryError) as error:
        status, said = (1, "not verified") if isinstance(error, CheckError) else (2, "bad input")
        with suppress(OSError):  # where nothing takes the error either, the exit status says it
            print(f"{said}: {str(error) or 'not enough memory'}", file=sys.stderr)
        return status


if __name__ == "__main__":
    # unlike print, this fails at once where nothing takes the line
    sys.exit(main(sys.argv[1:], lambda line: os.write(1, f"{line}\n".encode())))
