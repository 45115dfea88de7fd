"""Configurations of topics, groups and brokers, changed while they are in use."""

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)


def configure(
    admin: AdminClient, kind: ResourceType, names: Iterable[str], values: Mapping[str, str]
) -> None:
    """Set these configurations, of each that is named."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    asked = [ConfigResource(kind, name, incremental_configs=entries) for name in names]
    for future in admin.incremental_alter_configs(asked).values():
        future.result(30)
