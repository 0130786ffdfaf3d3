"""How the values of records are written and read as rows."""
