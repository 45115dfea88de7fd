"""Environment to frozen groups.

model         the whole tree; its groups are in pipeline (the way of a record) and kafka
base          what a group is, what a variable is, what a problem is
value_types   how a value is written; properties: of the Kafka client and of Spark
rules         what two settings must keep together; connection_rules: logins, files, two clusters
environment   finds the variables, validates, and reports every problem at once
redaction     what is secret by its name or by its place; secrets: by its value, in any text
reference     the table for people
"""

from hapax.settings.environment import load_settings, load_with_origins
from hapax.settings.kafka import SecuritySettings
from hapax.settings.model import VARIABLES, Settings

__all__ = ["VARIABLES", "SecuritySettings", "Settings", "load_settings", "load_with_origins"]
