import sys

from setuptools import Extension, setup

GCC = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-Wno-psabi"]

setup(
    ext_modules=[
        Extension(
            "pgmengine._kernels",
            ["cython_ext/_kernels.pyx"],
            include_dirs=["cython_ext"],
            depends=[f"cython_ext/{name}.h" for name in ("simd", "gray", "vector", "sweep", "learn", "team", "belief")],
            extra_compile_args=[] if sys.platform == "win32" else GCC,
        )
    ]
)
