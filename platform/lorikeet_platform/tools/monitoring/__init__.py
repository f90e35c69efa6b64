"""What a monitoring system is given: Grafana dashboards, Prometheus alerts, and the table of all metrics.

All three are written by `python -m lorikeet_platform.tools.monitoring` and lie in the chart and in docs/.
"""
