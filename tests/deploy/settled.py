"""The settings that a pod would find, and where it would find its secrets."""

from pathlib import Path
from typing import Final

from hapax.settings import Settings, load_settings
from tests.deploy.manifests import Object, driver, only

SECRETS: Final = "/run/secrets/hapax"
_CONTENTS: Final = {"redis-url": "rediss://hapax:geheim@redis:6380/0"}


def environment(objects: list[Object]) -> dict[str, str]:
    """Return the variables of the container that runs hapax, in a pod called hapax-0."""
    container = driver(objects)["spec"]["containers"][0]
    settings = only(objects, "ConfigMap")
    assert [source["configMapRef"]["name"] for source in container["envFrom"]] == [
        settings["metadata"]["name"]
    ]
    named = {"metadata.name": "hapax-0"}
    own = {
        each["name"]: named[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container.get("env", ())
    }
    return {**settings["data"], **own}


def secret_files(objects: list[Object]) -> set[str]:
    """Return the names of the Secret's files that the settings ask for."""
    return {
        value.removeprefix(f"{SECRETS}/")
        for name, value in environment(objects).items()
        if value.startswith(SECRETS)
    }


def settled(objects: list[Object], secrets: Path) -> Settings:
    """Return the settings as the service reads them, its secrets lying in ``secrets``."""
    for name in secret_files(objects):
        (secrets / name).write_text(_CONTENTS.get(name, "geheim"))
    return load_settings(
        {name: value.replace(SECRETS, str(secrets)) for name, value in environment(objects).items()}
    )
