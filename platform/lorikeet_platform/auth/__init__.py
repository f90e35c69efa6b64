"""Who is calling: key format, pepper, verification, and what a route must declare."""
