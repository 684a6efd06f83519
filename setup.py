"""Builds the compiled kernels; all else is in pyproject.toml.

The broker needs its kernels, so a C compiler builds them; those kernels that Spark's workers use are optional, as
their plain Python twins decide the same, slowly.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = [
    "jumpmq.hashing._kernel",
    "jumpmq.amqp._kernel",
    "jumpmq.store._kernel",
    "jumpmq.store._worker",
    "jumpmq.queues._kernel",
    "jumpmq.queues._lanes",
]

FOR_SPARK = {"jumpmq.hashing._kernel", "jumpmq.amqp._kernel"}

setup(
    ext_modules=cythonize(
        [
            Extension(
                name,
                [f"src/{name.replace('.', '/')}.pyx"],
                include_dirs=["src/jumpmq/store"],
                depends=["src/jumpmq/store/crc32.h"],
                extra_compile_args=["-O3"],
                optional=name in FOR_SPARK,
            )
            for name in KERNELS
        ],
        include_path=["src"],
        compiler_directives={"language_level": 3},
        build_dir="build",
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
