"""What the producing side of every guarantee has in common: its parts, and how it connects.

It also judges what the output topics refuse before it is sent. A broker refuses a whole set of
messages for one of them, and the refusal costs the producer. So a name is looked up when it is
first used, and after a refusal that lies in a key or a timestamp the topics' settings are asked
for: every message is judged by them, until none has been refused for a while. Reading settings
needs a right (DescribeConfigs) that may not be granted: then brokers judge.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException

from hapax.cluster.topic_rules import TopicRules, amended
from hapax.core.errors import BatchAbortedError, ProducerDeadError, StopError
from hapax.core.headers import ERROR
from hapax.core.record_path import Outputs
from hapax.kafka.admin.topics import absent_topics, topic_settings
from hapax.kafka.errors import describe
from hapax.kafka.produce.producer import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hapax.core.ports import Clock, Watch
    from hapax.core.records import Message
    from hapax.kafka.native import NativePath
    from hapax.kafka.produce.producer import LogLine, Placed
    from hapax.settings import Settings

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
SET_BYTES = 1_000_000
"""The client's own default."""
SET_BYTES_MIN = 4096
ALONE = {"batch.num.messages": 1}


class OutputTopics:
    """What is known of them; ``due``: the settings are to be asked for before the next message."""

    def __init__(self, config: ProducerConfig, clock: Clock, watch: Watch) -> None:
        self._properties = config.properties
        self._dead_letters = config.dead_letters
        self._clock = clock
        self._watch = watch
        # That those of the settings exist is no record's affair: their loss is a stop.
        self._used = set(config.required_topics)
        self._there: frozenset[str] = frozenset()
        self._absent: dict[str, float] = {}
        self._rules: dict[str, TopicRules] = {}
        self._asked_s = self._struck_s = 0.0
        self.due = False

    @property
    def awake(self) -> bool:
        return bool(self._rules)

    def require(self, name: str) -> None:
        self._used.add(name)

    def meet(self, names: Collection[str]) -> None:
        self._there = frozenset(names)

    def learn(self, codes: set[int]) -> bool:
        """Ask; return whether settings may explain it: not where messages were judged by them."""
        if self._rules or not codes & _BY_RULES:
            return False
        return self._ask()

    def admit(self, messages: Outputs) -> Outputs:
        """Return the messages as they are to be sent.

        Raises BatchAbortedError, which names all that would be refused. Dead letters are not: they
        are amended.
        """
        absent = set[str]()
        if not self._used.issuperset(messages.topics()):
            absent = self._look_up({message.topic for message in messages})
        if self.due or (self._rules and self._clock.monotonic() - self._asked_s > RULES_AGE_S):
            self._refresh()
        if not absent and not self._rules:
            return messages
        return self._judged(list(messages), absent)

    def _judged(self, messages: Sequence[Message], absent: set[str]) -> Outputs:
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
            text = f"messages would be refused ({len(refused)}): {next(iter(refused.values()))}"
            raise BatchAbortedError(text, refused=refused, content=True)
        return Outputs([letters.get(index, one) for index, one in enumerate(messages)])

    def _look_up(self, names: set[str]) -> set[str]:
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


class MessageSets:
    """How many messages go into one set, which brokers take or refuse as a whole.

    The client bounds a set by its own ``batch.size``; what a topic takes (``max.message.bytes``) it
    does not know, so outputs that fit one by one may be refused together. After a refusal each
    message is sent in a set of its own, before any is blamed: one that is refused then is surely to
    blame. When none is, the sets were too large, and they stay half as large.
    """

    COMMITS_MAX = 5
    """Transactions without a refusal after which no message is to blame: the first of them may hold
    other records than those that were refused."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._blamed = False
        self._commits = 0
        self.alone = False
        """Whether the next producer sends each message in a set of its own."""

    def properties(self) -> dict[str, int]:
        return {"batch.size": self._bytes_max} | (ALONE if self.alone else {})

    def refuse(self, refused: Mapping[int, str], *, alone: bool) -> Mapping[int, str]:
        """Take note of a refusal; return those messages of it that are surely to blame.

        ``alone``: whether each message had a set of its own, or was refused before it had any.
        """
        self.alone, self._commits = True, 0
        self._blamed = self._blamed or (alone and bool(refused))
        return refused if alone else {}

    def accept(self) -> bool:
        """Take note of success; return whether a producer that sends sets is to be built."""
        self._commits += 1
        if not self.alone or not (self._blamed or self._commits >= self.COMMITS_MAX):
            return False
        if not self._blamed:
            self._bytes_max = max(SET_BYTES_MIN, self._bytes_max // 2)
        self.alone = self._blamed = False
        return True


class ProducerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a producing side is built with.

    properties       of the client
    required_topics  those of the settings: one that is gone is no record's fault
    dead_letters     the topic of the dead letters, which are never refused
    round_robin      whether records without a key are spread evenly
    native           the native record path; None: messages are handed over one by one
    deadline_s       longest that one transaction, or one step of it, may take
    placed           delivery reports by index of the message in a call, as they are at that call
    """

    properties: dict[str, Any]
    required_topics: frozenset[str] = frozenset()
    dead_letters: str | None = None
    round_robin: bool = False
    deadline_s: float
    native: NativePath | None = None
    placed: Placed | None = None

    @classmethod
    def of(
        cls, settings: Settings, properties: dict[str, Any], native: NativePath | None = None
    ) -> ProducerConfig:
        topics = {settings.output.topic, settings.dead_letter.topic or settings.output.topic}
        return cls(
            properties=properties,
            required_topics=frozenset(topics),
            dead_letters=settings.dead_letter.topic,
            round_robin=settings.output.partitioner == "round_robin",
            deadline_s=settings.transaction.timeout_ms / 1000,
            native=native,
        )


def answer_of(ask: Callable[[], Any]) -> Any:
    """Raise ProducerDeadError when no broker answers."""
    try:
        return ask()
    except KafkaException as error:
        text = f"no broker answered: {describe(error.args[0])}"
        raise ProducerDeadError(text, unanswered=True) from error


class KafkaProducing:
    """One producer at a time, rebuilt on demand."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Clock,
        forward: LogLine,
        watch: Watch,
        meet_cluster: Callable[[str | None], None] = lambda _cluster_id: None,
    ) -> None:
        """``meet_cluster`` raises when positions belong to another cluster than the producer's."""
        self._config = config
        self._properties = config.properties
        self._deadline_s = config.deadline_s
        self._clock = clock
        self._forward = forward
        self._watch = watch
        self._meet_cluster = meet_cluster
        self._outbox: Outbox | None = None
        self._topics = OutputTopics(config, clock, watch)
        self._sets = MessageSets(int(config.properties.get("batch.size", SET_BYTES)))
        self._began_s = 0.0
        self._diagnosing = False
        """Whether each message asks for its report, since one of the last attempt was refused."""
        self.doubts: list[str] = []
        """What may have been sent twice; always empty without transactions, where that is only a
        duplicate."""

    def require(self, topic: str) -> None:
        """Write to a further topic whose loss is no record's fault."""
        required = self._config.required_topics | {topic}
        self._config = msgspec.structs.replace(self._config, required_topics=required)
        self._topics.require(topic)

    @property
    def age_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    @property
    def one_by_one(self) -> bool:
        """Whether it takes messages one by one only: to report on each, judge it, or place it."""
        native = self._config.native
        free = native is not None and not native.left and not self._diagnosing
        return not free or self._config.round_robin or self._topics.awake

    def _connect(self) -> tuple[Outbox, Any]:
        config = self._config
        outbox = Outbox(
            {**self._properties, **self._sets.properties()},
            self._forward,
            round_robin=config.round_robin,
            native=config.native,
            placed=config.placed,
        )
        with self._watch("list_topics"):
            metadata = answer_of(outbox.connect)
        self._topics.meet(metadata.topics)
        return outbox, metadata

    def _producer(self) -> Outbox:
        if self._outbox is None:
            raise ProducerDeadError("no producer")
        return self._outbox

    def _check_topics(self, outbox: Outbox) -> None:
        """Raise StopError when a topic of the settings is gone: no record is to blame for it."""
        gone = sorted(outbox.unknown_topics & self._config.required_topics)
        if gone:
            why = "no longer exists: recreate it; what was in it is gone, state as well"
            raise StopError(f"output topic {', '.join(gone)} {why}")
