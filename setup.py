import platform
import sys
from pathlib import Path

from setuptools import Extension, setup

GCC = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-Wno-psabi"]
AVX2 = ["-mavx2", "-mfma", "-mbmi", "-mbmi2"]
AVX512 = AVX2 + [f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl")]
PROCESSORS = {
    "base": []
}  # those that pgmengine/_kernels/__init__.py chooses from, by cython_ext/processor.h
if sys.platform != "win32" and platform.machine().lower() in ("x86_64", "amd64"):
    PROCESSORS |= {"avx2": AVX2, "avx512": AVX512}

setup(
    ext_modules=[
        Extension(
            f"pgmengine._kernels.{name}",
            [f"cython_ext/{name}.pyx"],
            include_dirs=["cython_ext"],
            depends=[
                str(path) for kind in ("*.h", "*.pxi") for path in Path("cython_ext").glob(kind)
            ],
            extra_compile_args=[] if sys.platform == "win32" else GCC + flags,
        )
        for name, flags in PROCESSORS.items()
    ],
    options={"build_ext": {"parallel": True}},
)
