"""The base model's tokenizer and chat template, as its own files define them.

Only the operator's model brings a template; an adapter's is never rendered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from lorikeet_engine.errors import InvalidRequest, UnsupportedModel


class Tokenizer:
    """Encoding, decoding and chat rendering of one model directory."""

    def __init__(self, model_dir: Path) -> None:
        """Raises UnsupportedModel when the directory has no `tokenizer.json`."""
        if not (model_dir / "tokenizer.json").exists():
            raise UnsupportedModel(f"{model_dir.name} has no tokenizer.json; only fast tokenizers are served")
        self._fast = PreTrainedTokenizerFast.from_pretrained(str(model_dir), local_files_only=True)
        # Asked directly, since every token of every answer is decoded: what is around it takes ten times as long, for
        # the sake of batches, tensors and padding.
        self._backend = self._fast.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()

    @property
    def has_chat_template(self) -> bool:
        return bool(self._fast.chat_template)

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a plain text, with the special tokens the model's tokenizer adds by itself."""
        return tuple(self._backend.encode(text).ids)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Token ids of a conversation, up to where the assistant's answer begins.

        Raises:
            InvalidRequest: the model has no chat template, or its template refuses the conversation.
        """
        if not self.has_chat_template:
            raise InvalidRequest("the base model has no chat template; use /v1/completions", param="messages")
        try:
            text = self._fast.apply_chat_template(
                [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # templates raise whatever their author chose, jinja2.TemplateError among it
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from error
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        return str(self._backend.decode(list(token_ids), skip_special_tokens=True))
