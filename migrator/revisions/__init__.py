"""Migration scripts: loading, graph, new-script template."""
