"""Studies: what is made of a sweep's rows, tables and figures for a paper."""
