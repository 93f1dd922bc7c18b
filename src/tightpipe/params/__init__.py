"""The numbers that tune the searches, one frozen dataclass for each search, and the limits of a solve."""
