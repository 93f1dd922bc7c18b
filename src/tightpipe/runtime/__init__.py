"""Schedules run and profiled with PyTorch."""
