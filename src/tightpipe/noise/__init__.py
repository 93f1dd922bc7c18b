"""Models of noise, the costs of schedules in random samples, and where the delays come from."""

from .bursts import Bursts
from .grammar import parse_noise, parse_noises
from .jitter import Jitter
from .noisy import Distribution, Noisy, run_noisy
from .slowness import SlowDevice, Slowdown, SlowLink
from .stall import Stall
from .times import NoiseModel, Times

__all__ = [
    "Bursts",
    "Distribution",
    "Jitter",
    "NoiseModel",
    "Noisy",
    "SlowDevice",
    "SlowLink",
    "Slowdown",
    "Stall",
    "Times",
    "parse_noise",
    "parse_noises",
    "run_noisy",
]
