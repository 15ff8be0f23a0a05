"""The decision that writes the topics which a group's regular expressions match.

A heartbeat's decision names the expressions to match (regex_schedule.py). They are matched outside of the shard, some
turns later, so members may have unsubscribed meanwhile.
"""

from collections.abc import Mapping

from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.records import epoch_record, regex_record
from kafkapy.group.consumer.subscriptions import ResolvedRegex
from kafkapy.group.decision import GroupDecision
from kafkapy.metadata.image import MetadataImage


def decide_resolution(
    group: ConsumerGroup, matches: Mapping[str, ResolvedRegex], image: MetadataImage
) -> GroupDecision:
    """Decide what the matching of expressions has found: bump the group epoch if the group's topics changed."""
    subscriptions = group.log.subscriptions.copy()
    records = []
    has_changed = False
    for regex, resolved in matches.items():
        if regex not in subscriptions.regexes:
            continue  # nobody subscribes to it any more
        before = subscriptions.resolved.get(regex, ResolvedRegex())
        has_changed = has_changed or resolved.topics != before.topics
        subscriptions.resolved[regex] = resolved
        records.append(regex_record(group.group_id, regex, resolved))
    if has_changed:
        group_epoch, metadata_hash = group.log.group_epoch + 1, group.hashes.of(subscriptions.topics(), image)
        records.append(epoch_record(group.group_id, group_epoch, metadata_hash))
        group.settings.counts.consumer_rebalances += 1
        group.metadata_checked(image, group_epoch)
    return GroupDecision(records=records)
