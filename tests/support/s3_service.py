"""An S3 service of one test run, on a port of this machine: moto, which keeps everything in this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import httpx
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from lorikeet_adapters.store.opening import StoreAddress

# What a client signs with; moto takes every signature.
CREDENTIALS: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": "AKIATHEIDOFAKEY00000",
    "AWS_SECRET_ACCESS_KEY": "the-secret-of-the-tests",
}


@dataclass(frozen=True, slots=True)
class S3Service:
    url: str

    def new_bucket(self, prefix: str = "") -> StoreAddress:
        bucket = f"b{uuid4().hex}"
        httpx.put(f"{self.url}/{bucket}", trust_env=False).raise_for_status()
        return StoreAddress(f"s3://{bucket}{prefix}", endpoint=self.url, region="us-east-1", allow_http=True)


@contextmanager
def running_s3_service() -> Iterator[S3Service]:
    """One request at a time, which makes its conditional writes as atomic as those of S3."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield S3Service(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
