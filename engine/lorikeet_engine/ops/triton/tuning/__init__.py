"""Launch configurations measured on a GPU: the table that serving reads, and the command that fills it."""
