"""What every room rests on and what knows nothing of schedules: errors, files, tables, signals, sources."""
