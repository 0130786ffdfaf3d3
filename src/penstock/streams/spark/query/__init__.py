"""A query: the operators of many nodes, run together batch by batch."""
