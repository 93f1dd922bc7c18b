"""The model of a training step: instances, orders and schedules, their times, validator and figures."""
