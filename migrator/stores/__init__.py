"""One module per system; each is the only one that imports its driver."""
