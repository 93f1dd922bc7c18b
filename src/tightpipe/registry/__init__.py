"""All methods and all lower bounds by name, and the functions that run them."""
