"""A failure is told at once, with its reason: a run that is cut off has told what it knew."""

from collections.abc import Generator

import pytest

_REASON_LINES, _REASON_LENGTH = 8, 900


class FailureLines:
    """Writes the end of the reason between the dots."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            if isinstance(terminal, pytest.TerminalReporter):
                terminal.write_line(f"\n{_line(report)}")
                terminal.write_line(reason(report))


def reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
    return "\n".join(text.splitlines()[-_REASON_LINES:])[-_REASON_LENGTH:]


def _line(report: pytest.TestReport | pytest.CollectReport) -> str:
    return f"failed: {report.nodeid} ({report.when})"


def pytest_configure(config: pytest.Config) -> None:
    """Register it where reports of all processes come together."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLines(config))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, object, object]:
    """Name what failed once more at the very end: of a long output people see that first."""
    result = yield
    for report in [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]:
        terminalreporter.write_line(_line(report))
    return result
