"""Environment to frozen groups."""

from hapax.settings.environment import load_settings, load_with_origins
from hapax.settings.kafka import SecuritySettings
from hapax.settings.model import VARIABLES, Settings

__all__ = ["VARIABLES", "SecuritySettings", "Settings", "load_settings", "load_with_origins"]
