"""Every method and every bound by name, and the functions that run them."""
