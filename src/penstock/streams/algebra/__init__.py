"""Kernels: stateful operators as functions of state and changes, without Spark."""
