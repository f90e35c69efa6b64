"""The database: sessions, tables, migrations at start."""
