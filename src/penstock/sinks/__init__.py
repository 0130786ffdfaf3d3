"""Where rows go that leave the log."""
