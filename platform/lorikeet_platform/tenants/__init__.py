"""Tenants: making and listing."""
