"""The settings tables of the papers, as data files."""
