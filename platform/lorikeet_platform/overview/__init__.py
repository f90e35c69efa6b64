"""The dashboard's first page: engine figures in tenants' and adapters' names."""
