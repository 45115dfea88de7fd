"""The topics of the outputs: whether they exist, and what they refuse, judged before it is sent.

A broker refuses a whole set of messages for one of them, and the refusal costs the producer. So a
name is looked up when it is first used, and after a refusal that lies in a key or a timestamp the
topics' settings are asked for: every message is judged by them, until none has been refused for a
while. Reading settings needs a right (DescribeConfigs) that may not be granted: then brokers judge.
"""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

from hapax.core.errors import BatchAbortedError
from hapax.core.headers import ERROR
from hapax.core.record_path import Prepared
from hapax.core.topic_rules import TopicRules, amended
from hapax.kafka.admin.topic_limits import absent_topics, topic_settings
from hapax.kafka.errors import describe

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

    from hapax.core.ports import Clock, Message, Watch
    from hapax.kafka.produce.base import ProducerConfig

RULES_AGE_S: Final = 60.0
"""Settings change while the service runs."""
ABSENT_AGE_S: Final = 10.0
PROPAGATION_S: Final = 2.0
"""Until every broker knows a topic that has just been created."""
ABSENT_MAX: Final = 1000
_BY_RULES: Final = frozenset(
    {KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG}
)
_ASSUMED: Final = TopicRules(before_ms=3_600_000, after_ms=3_600_000)
"""Of a dead-letter topic whose settings may not be read: what it refuses by Kafka's defaults."""
_topic_of = attrgetter("topic")


class OutputTopics:
    """What is known of them.

    due  the settings are to be asked for before anything else is sent
    """

    def __init__(self, config: ProducerConfig, clock: Clock, watch: Watch) -> None:
        self._properties = config.properties
        self._dead_letters = config.dead_letters
        self._clock = clock
        self._watch = watch
        # That those of the settings are there is no record's affair: their loss is a stop.
        self._used = set(config.required_topics)
        self._there: frozenset[str] = frozenset()
        self._absent: dict[str, float] = {}
        self._rules: dict[str, TopicRules] = {}
        self._asked_s = self._struck_s = 0.0
        self.due = False

    @property
    def awake(self) -> bool:
        """Whether each message is judged."""
        return bool(self._rules)

    def meet(self, names: Collection[str]) -> None:
        """Take note of the topics of the cluster."""
        self._there = frozenset(names)

    def learn(self, codes: AbstractSet[int]) -> bool:
        """Ask for the settings after a refusal; return whether they may explain it.

        They do not where messages had been judged by them.
        """
        if self._rules or not codes & _BY_RULES:
            return False
        return self._ask()

    def admit(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages as they are to be sent.

        Raises BatchAbortedError, which names all that would be refused. Dead letters are not: they
        are amended.
        """
        names = (messages.topic,) if isinstance(messages, Prepared) else map(_topic_of, messages)
        absent = set[str]()
        if not self._used.issuperset(names):
            absent = self._look_up({message.topic for message in messages})
        if self.due or (self._rules and self._clock.monotonic() - self._asked_s > RULES_AGE_S):
            self._refresh()
        if not absent and not self._rules:
            return messages
        return self._judged(list(messages), absent)

    def _judged(self, messages: Sequence[Message], absent: set[str]) -> Sequence[Message]:
        refused: dict[int, str] = {}
        letters: dict[int, Message] = {}
        now_ms = int(time.time() * 1000)
        for index, message in enumerate(messages):
            topic = message.topic
            if topic in absent:
                refused[index] = f"topic {topic} does not exist: correct the name, or create it"
            rules = self._rules.get(topic)
            why = rules and rules.refusal(topic, message.key, message.timestamp_ms, now_ms)
            if not rules or not why:
                continue
            self._struck_s = self._clock.monotonic()
            if topic == self._dead_letters and any(name == ERROR for name, _ in message.headers):
                letters[index] = amended(message, rules, now_ms)
            elif rules is not _ASSUMED:
                refused[index] = why
        if refused:
            text = f"{len(refused)} messages would be refused: {next(iter(refused.values()))}"
            raise BatchAbortedError(text, refused=refused, content=True)
        return [letters.get(index, one) for index, one in enumerate(messages)]

    def _look_up(self, names: set[str]) -> set[str]:
        """Return those of the names that no topic has."""
        self._used |= names & self._there
        unknown, now_s = names - self._used, self._clock.monotonic()
        due = {name for name in unknown if now_s - self._absent.get(name, -1e9) > ABSENT_AGE_S}
        if due:
            wait_s = PROPAGATION_S if due - self._absent.keys() else 0.0
            with self._watch("describe_topics"):
                try:
                    gone = absent_topics(self._properties, due, wait_s)
                except KafkaException as error:
                    text = f"no answer whether output topics exist: {describe(error.args[0])}"
                    raise BatchAbortedError(text) from None
            if len(self._absent) > ABSENT_MAX:
                self._absent.clear()
            self._absent |= dict.fromkeys(gone, self._clock.monotonic())
            self._used |= due - gone
        return unknown - self._used

    def _refresh(self) -> None:
        """Ask again while something is refused; else brokers judge again, and the path is free."""
        if self.due or self._struck_s >= self._asked_s:
            self._ask()
        else:
            self._rules = {}

    def _ask(self) -> bool:
        letters = {self._dead_letters} if self._dead_letters else set()
        with self._watch("describe_configs"):
            found = topic_settings(self._properties, self._used | letters)
        every = {topic: TopicRules.of(settings) for topic, settings in found.items()}
        self._rules = {topic: rules for topic, rules in every.items() if rules != TopicRules()}
        explained = bool(self._rules)
        self._rules |= dict.fromkeys(letters - found.keys(), _ASSUMED)
        self._asked_s, self.due = self._clock.monotonic(), False
        return explained
