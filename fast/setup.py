"""The extension. Nothing is linked: librdkafka is found in the process (src/librdkafka.h)."""

from pathlib import Path

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "hapax_fast._native",
            sorted(str(path) for path in Path("src").glob("*.c")),
            depends=sorted(str(path) for path in Path("src").glob("*.h")),
            extra_compile_args=["-O3", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden"],
            libraries=["dl", "pthread"],
        )
    ]
)
