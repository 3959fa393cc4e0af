import sys
from pathlib import Path

from setuptools import Extension, setup

GCC = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-Wno-psabi"]

setup(
    ext_modules=[
        Extension(
            "pgmengine._kernels",
            ["cython_ext/_kernels.pyx"],
            include_dirs=["cython_ext"],
            depends=[str(path) for kind in ("*.h", "*.pxi") for path in Path("cython_ext").glob(kind)],
            extra_compile_args=[] if sys.platform == "win32" else GCC,
        )
    ]
)
