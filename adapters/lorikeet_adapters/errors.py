"""What can be wrong with an adapter, and the sentence that says so.

Owns the error classes and the closed list of rejection codes. Knows nothing of HTTP: the edge renders `code`,
`message` and `param`. A sentence never carries more than a short, escaped piece of the file's own content.
"""

from __future__ import annotations

from typing import Final, Literal

SHOWN_CHARACTERS: Final = 120

RejectCode = Literal[
    "adapter_too_large",
    "alpha_invalid",
    "base_model_mismatch",
    "certificate_failed",
    "checksum_mismatch",
    "config_invalid",
    "content_quarantined",
    "dtype_unsupported",
    "feature_unsupported",
    "header_invalid",
    "header_length_invalid",
    "header_too_large",
    "invalid_file_set",
    "metadata_invalid",
    "module_not_allowed",
    "module_unknown",
    "non_finite_weights",
    "offset_mismatch",
    "offsets_gap",
    "offsets_overlap",
    "pair_incomplete",
    "pattern_not_allowed",
    "rank_invalid",
    "rank_mismatch",
    "rank_too_large",
    "scaling_too_large",
    "shape_invalid",
    "shard_index_invalid",
    "size_mismatch",
    "size_overflow",
    "target_mismatch",
    "tensor_count_invalid",
    "tensor_entry_invalid",
    "tensor_name_invalid",
    "trailing_data",
    "unsupported_format",
    "validator_crashed",
    "vector_mismatch",
    "weight_out_of_range",
]


class AdapterError(Exception):
    """Something about one adapter; `code` is for programs, `message` for people, `param` names the culprit."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param


class AdapterRejected(AdapterError):
    """The content cannot be served exactly; the same files will never be accepted.

    `subject` is the file, field or tensor at fault, `found` what it holds, `allowed` what it may hold.
    """

    def __init__(self, code: RejectCode, *, subject: str, found: str, allowed: str, advice: str = "") -> None:
        sentence = f"{subject}: found {found}; allowed: {allowed}."
        super().__init__(code, f"{sentence} {advice}".rstrip(), subject)

    @classmethod
    def restored(cls, code: str, message: str, param: str | None) -> AdapterRejected:
        """A rejection that was made in another process."""
        rejected = cls.__new__(cls)
        AdapterError.__init__(rejected, code, message, param)
        return rejected


class AdapterImageDamaged(AdapterError):
    """The stored bytes are not those that were validated."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__("integrity_error", f"The stored adapter {digest[:12]} is damaged: {reason}.")
        self.digest = digest


class AdapterImageMissing(AdapterError):
    """The store holds nothing under this digest for this tenant."""

    def __init__(self, digest: str) -> None:
        super().__init__("adapter_image_missing", f"The store holds no adapter {digest[:12]} for this tenant.")
        self.digest = digest


def quoted(value: object) -> str:
    """`value` as short ASCII, safe to put into a message, a log line or a page."""
    text = ascii(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def listed(names: list[str], *, limit: int = 8) -> str:
    """The first names of a list, and how many were left out."""
    shown = ", ".join(quoted(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
