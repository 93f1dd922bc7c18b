"""A study is a sweep whose rows become tables and a figure for a paper."""
