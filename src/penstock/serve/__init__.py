"""Views as tables that can be read: kept in SQLite beside the app, and given out over HTTP."""
