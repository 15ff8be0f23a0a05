"""One directory, both brokers: SCRAM users of either, and of `storage format --add-scram`, log in to the other."""

import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from harness.servers import CLUSTER_ID, ApacheKafka, Kafkapy, free_port
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.support.eventually import eventually
from tests.support.logins import jaas_keys, log_in, sasl_client
from tests.support.wire import WireClient

MECHANISM = "SCRAM-SHA-512"


def properties(port: int) -> dict[str, str]:
    ports = {"PLAINTEXT": port, "SASL_PLAINTEXT": free_port(), "CONTROLLER": free_port()}
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "controller.quorum.bootstrap.servers": "",
        "sasl.enabled.mechanisms": MECHANISM,
        **jaas_keys("SASL_PLAINTEXT", mechanisms=(MECHANISM,), users={}),
    }


def may_log_in(settings: dict[str, str], user: str) -> bool:
    listener = next(each for each in settings["listeners"].split(",") if each.startswith("SASL_"))
    with WireClient(listener.partition("://")[2]) as client:
        return log_in(client, sasl_client(MECHANISM, user, f"{user}-secret")).error_code == 0


def add_user(bootstrap: str, user: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(user, info, f"{user}-secret".encode())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.alter_user_scram_credentials([upsertion])[user].result(20)


def test_users_log_in_to_whoever_has_the_directory(tmp_path: Path) -> None:
    directory, port, users = tmp_path / "data", free_port(), ["formatted"]
    settings = {key: value for key, value in properties(port).items() if value}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in {**settings, "log.dirs": str(directory)}.items()))
    credential = f"{MECHANISM}=[name=formatted,password=formatted-secret]"
    command = [sys.executable, "-m", "kafkapy", "storage", "format", "-t", CLUSTER_ID, "-c", str(file)]
    subprocess.run([*command, "--add-scram", credential], check=True, capture_output=True)
    for kind in (ApacheKafka, Kafkapy) if SOAK_FACTOR == 1 else (ApacheKafka, Kafkapy, ApacheKafka):
        server = kind(directory, {**settings, "controller.quorum.bootstrap.servers": ""})
        server.port = port
        with server:
            for user in users:
                eventually(lambda user=user: may_log_in(settings, user))
            assert not may_log_in(settings, "nobody")
            users.append(f"user-{len(users)}")
            add_user(server.bootstrap, users[-1])
            eventually(lambda: may_log_in(settings, users[-1]))
