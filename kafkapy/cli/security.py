"""`kafkapy security init`: a secured node in two commands.

`user` and `acl` are in security_admin.py, `quota` in security_quotas.py, `token` in security_tokens.py.
"""

from pathlib import Path
from typing import Annotated

import typer

from kafkapy.cli import security_admin, security_quotas, security_tokens
from kafkapy.cli.failure import fail, reason_of
from kafkapy.cli.overview import GROUPS
from kafkapy.errors import KafkapyError

app = typer.Typer(no_args_is_help=True, help=GROUPS["security"])
app.add_typer(security_admin.user_app, name="user")
app.add_typer(security_admin.acl_app, name="acl")
app.add_typer(security_quotas.quota_app, name="quota")
app.add_typer(security_tokens.token_app, name="token")


@app.callback()
def _() -> None: ...


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where to; it must not be there, or be empty.")],
    user: Annotated[str, typer.Option("--user", help="The first user, a super user.")] = "admin",
    host: Annotated[str, typer.Option("--host", help="The name or address that clients connect to.")] = "localhost",
    port: Annotated[int, typer.Option("--port", min=1, max=65534, help="The next one is the controller's.")] = 9092,
) -> int:
    """Make a CA, a certificate, server.properties (SASL_SSL, SCRAM, ACLs), client.properties and a formatted node."""
    from kafkapy.server.secure_setup import set_up

    try:
        setup = set_up(directory, user=user, host=host, port=port)
    except (KafkapyError, OSError) as error:
        return fail(reason_of(error))
    config = setup.directory / "client.properties"
    print(f"Password of {user}, shown once (it is in {config}, too): {setup.password}\n")
    print(f"  kafkapy start {setup.directory / 'server.properties'}")
    print(f"  kafkapy topics list -b {setup.bootstrap_servers} --command-config {config}")
    print(f"  kafka-topics.sh --list --bootstrap-server {setup.bootstrap_servers} --command-config {config}")
    return 0
