"""Models of noise, the costs of schedules in random samples, and where the delays come from."""

from .models import (
    Bursts,
    Jitter,
    NoiseModel,
    SlowDevice,
    Slowdown,
    SlowLink,
    Stall,
    Times,
    parse_noise,
    parse_noises,
)
from .noisy import Distribution, Noisy, run_noisy

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
