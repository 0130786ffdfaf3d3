"""Apps: what they declare, how their nodes run, and what can be asked about them."""
