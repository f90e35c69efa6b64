"""Every refusal and failure the platform can answer with: one table from code to status, type and retry advice.

Sentences are built here or by the raiser; they never hold secrets, paths, SQL or another tenant's data.
Rendering is `web.errors`; this module knows no HTTP framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "conflict_error",
    "rate_limit_error",
    "insufficient_quota",
    "server_error",
]

MAX_QUOTED = 120  # characters of a caller's input that a sentence may repeat
MAX_RETRY_AFTER_MS = 120_000  # clients that are told to wait longer do not come back at all


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What a code means on the wire. `retryable` False adds `x-should-retry: false` where clients would retry.

    `retry_after_s` is what a caller is told when nothing better is known.
    """

    status: int
    type: ErrorType
    sentence: str
    retryable: bool = False
    retry_after_s: int | None = None


_BAD: ErrorType = "invalid_request_error"

ERRORS: Mapping[str, ErrorKind] = {
    "invalid_json": ErrorKind(400, _BAD, "The body is not valid JSON."),
    "duplicate_key": ErrorKind(400, _BAD, "The body has the same key twice in one object."),
    "invalid_unicode": ErrorKind(400, _BAD, "A string of the body is not valid Unicode."),
    "json_too_deep": ErrorKind(400, _BAD, "The body is nested too deeply."),
    "invalid_value": ErrorKind(400, _BAD, "A value is not allowed here."),
    "missing_parameter": ErrorKind(400, _BAD, "A required parameter is missing."),
    "unknown_parameter": ErrorKind(400, _BAD, "A parameter is not known."),
    "unsupported_parameter": ErrorKind(400, _BAD, "A parameter is not supported."),
    "context_length_exceeded": ErrorKind(400, _BAD, "Prompt and max_tokens exceed the model's context."),
    "request_exceeds_tpm": ErrorKind(400, _BAD, "The request has more tokens than the limit ever lets through."),
    "key_in_query": ErrorKind(400, _BAD, "Credentials belong in the Authorization header, not in the address."),
    "bad_request": ErrorKind(400, _BAD, "The request is not valid HTTP for this server."),
    "missing_api_key": ErrorKind(401, "authentication_error", "No API key: send `Authorization: Bearer lk_...`."),
    # One sentence for every reason that a key can be refused: malformed, unknown, revoked, expired.
    "invalid_api_key": ErrorKind(401, "authentication_error", "The API key is not valid."),
    "not_signed_in": ErrorKind(401, "authentication_error", "Sign in first, or send the administrator's token."),
    "invalid_owner_token": ErrorKind(401, "authentication_error", "The sign-in link is used up or has expired."),
    "insufficient_scope": ErrorKind(403, "permission_error", "The API key lacks the scope that this needs."),
    "ip_not_allowed": ErrorKind(403, "permission_error", "The API key may not be used from this address."),
    "adapter_not_allowed_for_key": ErrorKind(403, "permission_error", "The API key may not use this model."),
    "key_quota_exceeded": ErrorKind(403, "permission_error", "The tenant has as many keys as it may have."),
    "tenant_suspended": ErrorKind(403, "permission_error", "This tenant is suspended."),
    "csrf_failed": ErrorKind(403, "permission_error", "The request did not come from this dashboard's own pages."),
    "adapter_quota_exceeded": ErrorKind(403, "permission_error", "The tenant's room for adapters is used up."),
    "model_not_found": ErrorKind(404, _BAD, "The model does not exist."),
    "not_found": ErrorKind(404, _BAD, "Nothing is found here."),
    "method_not_allowed": ErrorKind(405, _BAD, "This address does not take that method."),
    "request_timeout": ErrorKind(408, _BAD, "The body arrived too slowly.", retryable=True),
    "name_conflict": ErrorKind(409, "conflict_error", "The name is taken."),
    "state_conflict": ErrorKind(409, "conflict_error", "The object is in another state."),
    "revision_conflict": ErrorKind(409, "conflict_error", "The alias was changed in the meantime."),
    "offset_conflict": ErrorKind(409, "conflict_error", "Upload-Offset is not where the upload stands."),
    "upload_sealed": ErrorKind(409, "conflict_error", "The upload already belongs to a version."),
    "upload_incomplete": ErrorKind(409, "conflict_error", "The upload is not complete."),
    "unsupported_tus_version": ErrorKind(412, _BAD, "Tus-Resumable must be 1.0.0."),
    "request_too_large": ErrorKind(413, _BAD, "The body is too large."),
    "adapter_too_large": ErrorKind(413, _BAD, "The file is larger than an adapter may be."),
    "unsupported_media_type": ErrorKind(415, _BAD, "The content type is not accepted here."),
    "tenant_limited": ErrorKind(429, "rate_limit_error", "Your requests fill your share of the engine.", True, 1),
    "rate_limit_exceeded": ErrorKind(429, "rate_limit_error", "Too much within a minute.", True, 1),
    "concurrency_limit_exceeded": ErrorKind(429, "rate_limit_error", "Too many requests run at once.", True, 1),
    "queue_limit_exceeded": ErrorKind(429, "rate_limit_error", "Too many requests wait.", True, 1),
    "insufficient_quota": ErrorKind(429, "insufficient_quota", "The month's tokens are used up."),
    "too_many_uploads": ErrorKind(429, "rate_limit_error", "Too many uploads are open.", True, 5),
    "headers_too_large": ErrorKind(431, _BAD, "The request's headers are too many or too large."),
    "slice_checksum_mismatch": ErrorKind(460, _BAD, "The bytes do not match Upload-Checksum; nothing was kept."),
    "internal_error": ErrorKind(500, "server_error", "An error on our side.", True),
    "overloaded": ErrorKind(503, "server_error", "No room for more requests right now.", True, 1),
    "engine_unavailable": ErrorKind(503, "server_error", "The engine is not ready.", True, 2),
    "adapter_unavailable": ErrorKind(503, "server_error", "The adapter cannot be loaded."),
    # An answer that had begun; a new request gets 401 or 403.
    "key_revoked": ErrorKind(503, "server_error", "The API key was revoked while this was answered."),
    # An answer that had begun; before its first token the model is not found.
    "adapter_retired": ErrorKind(503, "server_error", "The adapter was taken out of service while it answered."),
    "integrity_error": ErrorKind(503, "server_error", "The stored adapter is damaged; it is taken out of service."),
    "db_unavailable": ErrorKind(503, "server_error", "The database does not answer.", True, 2),
    "store_unavailable": ErrorKind(503, "server_error", "The store of adapters does not answer.", True, 2),
    "auth_unavailable": ErrorKind(503, "server_error", "Keys cannot be checked right now.", True, 2),
    "metering_unavailable": ErrorKind(503, "server_error", "Usage cannot be recorded right now.", True, 2),
    "draining": ErrorKind(503, "server_error", "The server is shutting down.", True, 2),
    "deadline_exceeded": ErrorKind(504, "server_error", "The request waited too long for its first token.", True, 1),
    "storage_full": ErrorKind(507, "server_error", "There is no room to store the file."),
}


class PlatformError(Exception):
    """A refusal with its place in the table; `param` names the field at fault.

    Args:
        retry_after_s: when to come back, where that was computed; the table's word otherwise.
        is_final: asking again brings the same answer, whatever the table says of the code; no time to come back then.

    Attributes:
        retry_after_ms: None = nothing is said of when.
    """

    def __init__(
        self,
        code: str,
        message: str | None = None,
        param: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        is_final: bool = False,
    ) -> None:
        self.kind = ERRORS[code]
        self.code = code
        self.message = message or self.kind.sentence
        self.param = param
        self.headers = dict(headers or {})
        self.is_retryable = self.kind.retryable and not is_final
        wait_s = self.kind.retry_after_s if retry_after_s is None else retry_after_s
        self.retry_after_ms = None
        if wait_s is not None and not is_final:
            self.retry_after_ms = min(max(1, ceil(wait_s * 1000)), MAX_RETRY_AFTER_MS)
        super().__init__(f"{code}: {self.message}")


def quoted(text: str) -> str:
    """A caller's text, cut and escaped, for use inside a sentence."""
    shown = text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…"
    return ascii(shown)[: MAX_QUOTED + 2]


def model_not_found(model: str) -> PlatformError:
    """One sentence for unknown, not ready, and another tenant's: they must not be told apart."""
    return PlatformError("model_not_found", f"The model {quoted(model)} does not exist.", "model")
