"""The controller's table of SCRAM credentials: what it begins with, and levels that have no such records."""

import pytest

from kafkapy.metadata.features import FeatureControl
from kafkapy.metadata.image import METADATA_VERSION, FeaturesImage, MetadataImage
from kafkapy.metadata.scram import ScramControl
from kafkapy.metadata.scram_types import BY_CODE, credential_record
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

ALICE = credential_record("alice", BY_CODE[1], salt=b"salt", salted=b"salted", iterations=4096)


def control(level: int = 30) -> ScramControl:
    features = FeatureControl()
    features.load(MetadataImage(features=FeaturesImage({METADATA_VERSION: level})))
    return ScramControl(features, {(1, "alice"): ALICE})


def test_what_the_image_had_can_be_deleted_once() -> None:
    table = control()
    request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("alice", mechanism=1)])
    decision = table.decide_alter(request)
    assert [result.error for result in decision.response] == [None]
    assert decision.is_atomic
    (record,) = decision.records
    assert table.by_key == {(1, "alice"): ALICE}
    table.replay_remove(record)
    assert table.by_key == {}
    (result,) = table.decide_alter(request).response
    assert result.error.code == ErrorCode.RESOURCE_NOT_FOUND


def test_a_record_holds_keys_and_no_password() -> None:
    table = control()
    upsertion = ScramCredentialUpsertion(
        "alice", mechanism=1, iterations=8192, salt=b"other", salted_password=b"salted"
    )
    (record,) = table.decide_alter(AlterUserScramCredentialsRequest(upsertions=[upsertion])).records
    assert (record.salt, record.iterations) == (b"other", 8192)
    assert (record.stored_key, record.server_key) == (ALICE.stored_key, ALICE.server_key)
    assert b"salted" not in record.encode(0)
    table.replay(record)
    assert table.by_key == {(1, "alice"): record}


@pytest.mark.parametrize(("level", "code"), [(10, ErrorCode.UNSUPPORTED_VERSION), (11, None)])
def test_there_are_credentials_from_metadata_version_11_on(level, code) -> None:
    request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("alice", mechanism=1)])
    (result,) = control(level).decide_alter(request).response
    assert (result.error and result.error.code) == code
