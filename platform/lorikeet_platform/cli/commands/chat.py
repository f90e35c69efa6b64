"""`lorikeet chat`: a conversation in the terminal, with the tenant's key."""

from __future__ import annotations

from typing import Annotated

import typer

from lorikeet_platform.cli.commands.options import DEFAULT_API_URL, ApiUrl


def chat(
    message: Annotated[str | None, typer.Argument(help="Ask this and end; without it, a conversation.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Adapter or base model (default: the base model).")
    ] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
) -> None:
    """Talk to a model; answers appear as they are made."""
    from lorikeet_platform.cli.api import tenant_api
    from lorikeet_platform.cli.conversation import Conversation

    with tenant_api(api_url) as api:
        conversation = Conversation(api, model)
        if message is not None:
            conversation.ask(message)
        else:
            conversation.run()
