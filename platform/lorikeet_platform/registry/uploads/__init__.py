"""Resumable uploads by tus 1.0: one store object per PATCH, so that any gateway can continue one."""
