"""A signal that Python swallows in a destructor or a weak reference's callback comes again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

COMMAND = """
import os, signal, sys, time, weakref
import click
from tightpipe.cli import cli, main

class Node:
    pass

@cli.command()
def waits():
    node = Node()
    reference = weakref.ref(node, lambda _: (os.kill(os.getpid(), int(sys.argv[2])), time.sleep(0)))
    del node
    print("swallowed", flush=True)
    time.sleep(60)
    print("lost", flush=True)

waits.params.append(click.Argument(["number"], expose_value=False))
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_swallowed_signal_ends_the_command_a_little_later(number: signal.Signals, status: int) -> None:
    command = [sys.executable, "-c", COMMAND, "waits", str(int(number))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout) == (status, "swallowed\n"), ended.stderr
    assert len(ended.stderr.splitlines()) == 1
