"""The figures of runs of any source: PNG pages, one HTML file that holds them, and Markdown."""

from lorikeet_platform.tools.bench.report.writing import draw

__all__ = ["draw"]
