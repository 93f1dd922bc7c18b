"""The model of a repeating block of a given period."""
