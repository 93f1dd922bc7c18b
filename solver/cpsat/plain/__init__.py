"""The plain formulation: start times and intervals."""
