"""What commands show in a terminal: tables, JSON, progress."""
