"""Load tests: requests against any OpenAI-compatible server, and the figures of a run of any source."""
