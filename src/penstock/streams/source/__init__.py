"""Reading topics as typed rows with a clock, without Spark."""
