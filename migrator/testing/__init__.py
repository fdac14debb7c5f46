"""Shipped for adapters: contract suite, strategies, faults."""
