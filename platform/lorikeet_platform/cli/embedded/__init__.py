"""`lorikeet up`: engine, gateway and worker on one machine, watched by one supervisor."""
