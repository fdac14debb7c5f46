"""The pure core: values, paths, rules, blocks, evolutions, moves. No I/O and no clock."""
