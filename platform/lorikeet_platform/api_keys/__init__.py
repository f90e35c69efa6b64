"""Keys of tenants: making, listing, revoking."""
