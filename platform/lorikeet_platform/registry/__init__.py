"""Adapters of tenants: uploads, versions, aliases, and which version a model name means."""
