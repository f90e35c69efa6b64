"""Pushing an adapter: local checks, a resumable upload, sealing, waiting."""
