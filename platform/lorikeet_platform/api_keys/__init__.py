"""Keys of tenants: who may make, change and end which, and what ends with them."""
