"""`lorikeet adapters`: through the tenant API, with the tenant's key; what needs no server is in `offline`."""

import typer

from lorikeet_platform.cli.commands.adapters import aliases, lifecycle, listing, offline, pull, push

app = typer.Typer(help="Push, look at, switch and retire your LoRA adapters.", no_args_is_help=True)
app.command("push")(push.push)
app.command("pull")(pull.pull)
app.command("list")(listing.list_all)
app.command("show")(listing.show)
app.command("versions")(listing.versions)
app.add_typer(aliases.app, name="alias")
app.command("retire")(lifecycle.retire)
app.command("restore")(lifecycle.restore)
app.command("retry")(lifecycle.retry)
app.command("delete")(lifecycle.delete)
app.command("certify")(offline.certify)
app.command("convert")(offline.convert)
