"""How inner loops are compiled, and where what is compiled is kept."""
