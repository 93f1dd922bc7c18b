"""The numbers that tune the searches, one frozen dataclass for each search, and the limits of a solve.

They lie here and not beside the searches, because a budget hands them to every search, and because they are
read, listed and checked without loading any solver.
"""
