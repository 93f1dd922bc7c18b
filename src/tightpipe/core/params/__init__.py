"""The numbers that tune the searches, as data: one frozen dataclass for each search.

They lie here and not beside the searches, because a budget hands them to every search, and because they are
read, listed and checked without loading any solver.
"""
