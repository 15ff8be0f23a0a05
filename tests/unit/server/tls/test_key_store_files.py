"""What is named as a key or trust store is read on the loop: it must be a file, and a small one."""

import os
from pathlib import Path

import pytest

from kafkapy.errors import ConfigError
from kafkapy.server.tls.key_stores import MOST_FILE_BYTES, open_key_store, open_trust_store
from tests.unit.server.tls.test_key_stores import tls


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="it is no regular file"):
        open_key_store(tls(ssl_keystore_type="PEM", ssl_keystore_location=str(pipe)))
    with pytest.raises(ConfigError, match="it is no regular file"):
        open_trust_store(tls(ssl_truststore_type="JKS", ssl_truststore_location="/dev/zero"))


def test_a_file_that_no_store_is_as_large_as_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(MOST_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match=f"it has more than {MOST_FILE_BYTES} bytes"):
        open_trust_store(tls(ssl_truststore_type="PEM", ssl_truststore_location=str(path)))


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "store.pem").write_text("nothing")
    (tmp_path / "link").symlink_to("store.pem")
    with pytest.raises(ConfigError, match="At least one certificate expected"):
        open_trust_store(tls(ssl_truststore_type="PEM", ssl_truststore_location=str(tmp_path / "link")))
