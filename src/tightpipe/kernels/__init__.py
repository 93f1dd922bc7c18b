"""Compilation of inner loops to machine code, and the cache folder in which the machine code is kept."""
