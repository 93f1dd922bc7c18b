"""Hypothesis profile of all tests."""

import os

from hypothesis import settings

# compiled loops make the first example slow, so no deadlines; CI draws the same examples every time
settings.register_profile("tightpipe", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tightpipe")
