"""`kafkapy security token create|list|renew|expire`: Java's kafka-delegation-tokens.sh. KIP-48.

Uses a connection of our own: librdkafka lacks these requests.
"""

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from kafkapy.cli.client import DEFAULT_SERVER, AsJson, Server
from kafkapy.cli.connected import checked, connected
from kafkapy.cli.output import print_json, print_table

token_app = typer.Typer(
    help="Delegation tokens: logins by SCRAM that end, for those who are to have no password.", no_args_is_help=True
)

AS_LONG_AS_ALLOWED: Final = -1
AT_ONCE: Final = -1

Hmac = Annotated[str, typer.Argument(metavar="HMAC", show_default=False, help="The token's, as create shows it.")]


@token_app.command("create")
def create_token(
    renewer: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="USER", help="Who else may renew and expire it (repeat).")
    ] = None,
    owner: Annotated[
        str, typer.Option("--owner", metavar="USER", help="Whose it is; yours unless you may make others'.")
    ] = "",
    max_life: Annotated[
        int, typer.Option("--max-life", metavar="MS", help="How long it can be renewed at most; -1: as allowed.")
    ] = AS_LONG_AS_ALLOWED,
    bootstrap_server: Server = DEFAULT_SERVER,
) -> None:
    """Make a token and show its id and HMAC: user name and password of a login with tokenauth="true"."""
    from kafkapy.protocol.messages.create_delegation_token_request import (
        CreatableRenewers,
        CreateDelegationTokenRequest,
    )

    renewers = [CreatableRenewers("User", principal_name=name) for name in renewer or ()]
    # A token without an owner is its requester's. Version 3 is the first that can name another owner (KIP-373).
    kind, name = ("User", owner) if owner else (None, None)
    with connected(bootstrap_server) as connection:
        token = checked(
            connection.call(
                CreateDelegationTokenRequest(
                    kind, owner_principal_name=name, renewers=renewers, max_lifetime_ms=max_life
                ),
                3,
            )
        )
    hmac = base64.b64encode(token.hmac).decode()
    print(
        f"Token {token.token_id} of {token.principal_name}, valid until {_iso(token.expiry_timestamp_ms)}, and if it is"
    )
    print(f"renewed until {_iso(token.max_timestamp_ms)} at most. Its HMAC:\n\n{hmac}\n")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    print(f'sasl.jaas.config={module} required username="{token.token_id}" password="{hmac}" tokenauth="true";')


@token_app.command("list")
def list_tokens(
    owner: Annotated[
        list[str] | None, typer.Option("--owner", metavar="USER", help="Only those of this user (repeat).")
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: Server = DEFAULT_SERVER,
) -> None:
    """List the tokens that you may see; with --json their HMACs, too."""
    from kafkapy.protocol.messages.describe_delegation_token_request import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
    )

    owners = [DescribeDelegationTokenOwner("User", principal_name=name) for name in owner] if owner else None
    with connected(bootstrap_server) as connection:
        found = checked(connection.call(DescribeDelegationTokenRequest(owners), 3)).tokens
    rows = sorted((_row(token) for token in found), key=lambda row: str(row["issued"]))
    if as_json:
        print_json(rows)
        return
    columns = ("id", "owner", "requester", "renewers", "issued", "expires", "max")
    shown = ([" ".join(row[name]) if name == "renewers" else row[name] for name in columns] for row in rows)
    print_table([column.upper() for column in columns], shown)


@token_app.command("renew")
def renew_token(
    hmac: Hmac,
    period: Annotated[
        int, typer.Option("--period", metavar="MS", help="For how long from now; -1: as allowed.")
    ] = AS_LONG_AS_ALLOWED,
    bootstrap_server: Server = DEFAULT_SERVER,
) -> None:
    """Extend the validity of a token."""
    from kafkapy.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest

    request = RenewDelegationTokenRequest(_decoded(hmac), renew_period_ms=period)
    with connected(bootstrap_server) as connection:
        response = checked(connection.call(request, 2))
    print(f"Valid until {_iso(response.expiry_timestamp_ms)}.")


@token_app.command("expire")
def expire_token(
    hmac: Hmac,
    period: Annotated[int, typer.Option("--period", metavar="MS", help="In how long; -1: at once.")] = AT_ONCE,
    bootstrap_server: Server = DEFAULT_SERVER,
) -> None:
    """Expire a token: logins with it are refused from then on."""
    from kafkapy.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest

    request = ExpireDelegationTokenRequest(_decoded(hmac), expiry_time_period_ms=period)
    with connected(bootstrap_server) as connection:
        response = checked(connection.call(request, 2))
    print(f"Ends at {_iso(response.expiry_timestamp_ms)}.")


def _decoded(hmac: str) -> bytes:
    try:
        return base64.b64decode(hmac, validate=True)
    except binascii.Error as error:
        raise typer.BadParameter("the HMAC is base64, as create shows it") from error


def _row(token: Any) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "owner": token.principal_name,
        "requester": token.token_requester_principal_name,
        "renewers": [each.principal_name for each in token.renewers],
        "issued": _iso(token.issue_timestamp),
        "expires": _iso(token.expiry_timestamp),
        "max": _iso(token.max_timestamp),
        "hmac": base64.b64encode(token.hmac).decode(),
    }


def _iso(timestamp_ms: int) -> str:
    """Return a timestamp as text; times after the year 9999 are shown as its end."""
    latest_ms = 253_402_300_799_000
    time = datetime.fromtimestamp(min(timestamp_ms, latest_ms) / 1000, UTC)
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
