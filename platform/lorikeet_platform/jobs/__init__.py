"""Work that outlives a request. The jobs table is the truth; Celery messages only wake a worker."""
