"""What Prometheus reads at /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

REQUESTS = Counter("edgekit_requests", "Requests that were answered or refused.", ("model", "target", "code"))
STAGES = Histogram(
    "edgekit_stage_seconds",
    "Time of a request by stage: read (its body), queue (until its run), run, write.",
    ("model", "target", "stage"),
    buckets=SECONDS,
)
ROWS = Histogram("edgekit_batch_rows", "Rows of a request.", ("model", "target"), buckets=(1, 2, 4, 8, 16, 32, 64))
QUEUE = Gauge("edgekit_queue", "Requests that wait or run.", ("model", "target"))
REFUSED = Counter("edgekit_refused", "Requests that were refused, by reason.", ("reason",))
RELOADS = Counter("edgekit_reloads", "Newer artifacts: done or refused.", ("model", "target", "outcome"))
