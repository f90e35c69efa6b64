"""The validation of a version, step by step: files, live check, verdict, and the job that goes through them."""
