"""The login of a node to another by PLAIN or SCRAM: with username and password of the listener's login module."""

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError
from kafkapy.metadata.scram_types import MECHANISMS
from kafkapy.seams import Random
from kafkapy.security.plain import PlainClient
from kafkapy.security.sasl import PLAIN, SaslClient
from kafkapy.security.scram import ScramClient
from kafkapy.server.login.authentication import new_nonce, server_options


def node_login(config: BrokerConfig, listener: str, mechanism: str, random: Random) -> SaslClient:
    """Return the state machine of one login. Raises ConfigError."""
    if mechanism != PLAIN and mechanism not in MECHANISMS:
        known = ", ".join((PLAIN, *MECHANISMS))
        message = f"nodes log in to the listener {listener} by one of {known}"
        raise ConfigError("sasl.mechanism.inter.broker.protocol", mechanism, message)
    options = server_options(config, listener, mechanism)
    name, password = options.get("username"), options.get("password")
    if name is None or password is None:
        key = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        raise ConfigError(key, "[hidden]", "it has no username or password, by which this node could log in to others")
    if mechanism == PLAIN:
        return PlainClient(name, password)
    return ScramClient(MECHANISMS[mechanism], name, password, nonce=new_nonce(random))
