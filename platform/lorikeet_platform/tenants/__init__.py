"""Tenants: making, changing, suspending and listing; the names that people read."""
