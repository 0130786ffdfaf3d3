"""How kernels, sources and sinks meet Spark."""
