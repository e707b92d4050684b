"""Compiles CUDA C files to machine code with NVIDIA's run-time compiler: `nvrtc.py FOLDER ARCH FILE...`.

The library is libnvrtc.so.12, from `NVRTC` in the environment or from the package nvidia-cuda-nvrtc-cu12.
"""

import ctypes
import os
import pathlib
import sys

VARIANTS = {"o3": [], "fast": ["--use_fast_math"], "nofma": ["--fmad=false"]}


def library():
    path = os.environ.get("NVRTC")
    if not path:
        import nvidia.cuda_nvrtc

        path = os.path.join(list(nvidia.cuda_nvrtc.__path__)[0], "lib", "libnvrtc.so.12")
    return ctypes.CDLL(path)


def compile(nvrtc, source, name, options):
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    code = nvrtc.nvrtcCompileProgram(program, len(options), given)
    size = ctypes.c_size_t()
    if code != 0:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(f"{name}: {log.value.decode()}")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, image)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw


def main():
    folder, arch, files = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    nvrtc = library()
    for file in files:
        source, name = pathlib.Path(file).read_text(), pathlib.Path(file).stem
        for variant, options in VARIANTS.items():
            image = compile(nvrtc, source, pathlib.Path(file).name, [f"--gpu-architecture={arch}", *options])
            (folder / f"{name}.{variant}.cubin").write_bytes(image)


main()
