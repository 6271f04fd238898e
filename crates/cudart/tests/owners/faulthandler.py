"""A correct program, then a store that comes too early, then one to address 0. The argument says when
Python's fault handler is enabled."""
import ctypes
import faulthandler
import os
import sys

moment = sys.argv[1]
cuda = ctypes.CDLL(os.environ["LIBRARY"])
PAGE = 4096


def must(code):
    assert code == 0, code


def starts_copy():
    must(cuda.cudaMemcpyAsync(device, host, ctypes.c_size_t(100), 1, stream))


def does_wrong():
    sys.stdout.flush()
    ctypes.c_char.from_address(16).value = b"x"


if moment == "before":
    faulthandler.enable()
host, device, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
must(cuda.cudaStreamCreate(ctypes.byref(stream)))
must(cuda.cudaMallocHost(ctypes.byref(host), ctypes.c_size_t(PAGE)))
must(cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(PAGE)))
ctypes.memset(host, 0, PAGE)
starts_copy()
if moment in ("after", "between"):
    faulthandler.enable()
if moment == "between":
    faulthandler.disable()
cuda.cudaStreamQuery(stream)
memory = (ctypes.c_ubyte * PAGE).from_address(host.value)
for at in range(100, PAGE):
    memory[at] = at % 251
starts_copy()
for at in range(100, PAGE):
    assert memory[at] == at % 251
memory[50] = 1
must(cuda.cudaStreamSynchronize(stream))
print("all is right")
if moment == "between":
    faulthandler.enable()
does_wrong()
