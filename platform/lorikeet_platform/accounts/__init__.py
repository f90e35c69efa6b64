"""People and tools on the administration port: owner link, sessions, the CLI's token."""
