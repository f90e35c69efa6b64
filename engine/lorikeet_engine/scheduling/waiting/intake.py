"""What a request must be like to be served at all, whatever else is going on, and what its KV blocks are keyed by."""

from __future__ import annotations

from collections.abc import Container, Sequence

from lorikeet_engine.errors import ContextLengthExceeded, InvalidRequest
from lorikeet_engine.memory.kv.manager import KvManager
from lorikeet_engine.memory.kv.prefix_index import PrefixChain, prefix_root
from lorikeet_engine.scheduling.limits import SchedulerLimits
from lorikeet_engine.scheduling.request import Request, Siblings
from lorikeet_engine.scheduling.waiting.fairness import TenantAccount


def check_together(
    requests: Sequence[Request], limits: SchedulerLimits, kv: KvManager, *, known: Sequence[Container[str]]
) -> None:
    """Raise unless these are choices of one prompt, each could run, and none has an id that is known.

    Raises:
        InvalidRequest, ContextLengthExceeded: see `check_request`; or an id that is in use.
        ValueError: they are not choices of one prompt.
    """
    if len({request.origin for request in requests}) != 1:
        raise ValueError("requests of one submit have one tenant, adapter and prompt")
    for request in requests:
        check_request(request, limits, kv)
        if any(request.request_id in ids for ids in known):
            raise InvalidRequest(f"request id {request.request_id} is in use")


def check_request(request: Request, limits: SchedulerLimits, kv: KvManager) -> None:
    """Raise unless the request could run on an engine with nothing else to do.

    Raises:
        InvalidRequest: no prompt, a token outside the vocabulary, `max_tokens` below 1, or a weight not above 0.
        ContextLengthExceeded: prompt and `max_tokens` exceed the context, the KV pool, the tenant's share of it or,
            without chunked prefill, a step.
    """
    prompt = request.prompt
    if not prompt:
        raise InvalidRequest("the prompt has no tokens", param="prompt")
    if min(prompt) < 0 or max(prompt) >= limits.vocab:
        raise InvalidRequest(f"the prompt has a token id outside 0 … {limits.vocab - 1}", param="prompt")
    if request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}; it must be at least 1", param="max_tokens")
    if not 0 < request.weight < float("inf"):
        raise InvalidRequest(f"the tenant's weight is {request.weight}; it must be above 0")
    tokens = f"prompt ({len(prompt)} tokens) plus max_tokens ({request.max_tokens})"
    if request.n_total > limits.max_model_len or not kv.could_ever_hold(request.n_total):
        raise ContextLengthExceeded(
            f"{tokens} exceeds the context of {limits.max_model_len} tokens", param="max_tokens"
        )
    whole = limits.max_num_batched_tokens
    if not limits.enable_chunked_prefill and request.n_total - 1 > whole:  # after a preemption, prompt and answer
        raise ContextLengthExceeded(f"{tokens} exceeds the {whole} tokens that one step computes", param="max_tokens")
    if kv.blocks_for(request.n_total) > int(limits.tenant_kv_share * kv.n_usable):
        raise ContextLengthExceeded(f"{tokens} exceeds the tenant's share of the KV pool", param="max_tokens")


def chain_of(request: Request, limits: SchedulerLimits, kv: KvManager) -> PrefixChain:
    """The keys of the prompt's full blocks: they depend on the model, the KV format, tenant, salt and adapter."""
    model, kv_format = limits.cache_root
    root = prefix_root(
        model=model,
        kv_format=kv_format,
        block_size=kv.block_size,
        tenant=request.tenant,
        salt=request.cache_salt,
        adapter=request.adapter.digest if request.adapter else None,
    )
    chain = PrefixChain(root, kv.block_size)
    chain.extend(request.tokens, request.n_prompt)
    return chain


def bind_choices(requests: Sequence[Request], account: TenantAccount, limits: SchedulerLimits, kv: KvManager) -> None:
    """Make the requests of one submit siblings: the first computes the prompt, the others fork from it."""
    siblings, chain = Siblings(), chain_of(requests[0], limits, kv)
    for request in requests:
        request.account, request.siblings = account, siblings
        request.chain = chain.branch(len(chain.keys))
        request.n_expected = 1
    first = requests[0]
    first.n_expected = first.n_prompt - len(kv.lookup(first.chain, first.n_prompt).blocks) * kv.block_size
