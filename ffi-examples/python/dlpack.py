#!/usr/bin/env python3
"""Buffers of pinlane as arrays of NumPy and PyTorch, and their arrays as buffers, without a copy.

    python3 ffi-examples/python/dlpack.py [LIBRARY]     (default: libpinlane.so)

Needs NumPy 2.1 or later, and nothing that must be built: ctypes calls the C interface. PyTorch
joins in if it is installed. Runs on the GPU, or on the emulated device if there is none.
"""
import ctypes
import math
import sys
from ctypes import (POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint8,
                    c_uint16, c_uint32, c_void_p, py_object)

lib = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libpinlane.so")
lib.pinlane_last_error.restype = c_char_p


def call(name, *arguments):
    """Calls a function of the C interface. An error becomes an exception."""
    function = getattr(lib, name)
    function.restype = c_int32
    if function(*arguments) != 0:
        raise RuntimeError(lib.pinlane_last_error().decode())


def made(name, *arguments):
    """Calls a function whose last parameter is an output: a handle or an address."""
    out = c_void_p()
    call(name, *arguments, byref(out))
    return out


# --- Capsules: how tensors cross between Python libraries ----------------------------------------

python = ctypes.pythonapi
python.PyCapsule_New.restype = py_object
python.PyCapsule_New.argtypes = [c_void_p, c_char_p, c_void_p]
python.PyCapsule_IsValid.argtypes = [c_void_p, c_char_p]
python.PyCapsule_GetPointer.restype = c_void_p
python.PyCapsule_GetPointer.argtypes = [c_void_p, c_char_p]
python.PyCapsule_SetName.argtypes = [py_object, c_char_p]

# A consumer renames a capsule when it takes the tensor over. CPython keeps a pointer to the name.
VERSIONED, USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"
LEGACY = b"dltensor"


class Versioned(Structure):
    """The beginning of DLPack's DLManagedTensorVersioned."""
    _fields_ = [("version", c_uint32 * 2), ("context", c_void_p), ("deleter", c_void_p)]


class Legacy(Structure):
    """The older DLManagedTensor, whose tensor takes 48 bytes."""
    _fields_ = [("tensor", c_uint8 * 48), ("context", c_void_p), ("deleter", c_void_p)]


DESTRUCTOR = ctypes.CFUNCTYPE(None, c_void_p)


@DESTRUCTOR
def delete_unused(capsule):
    """Deletes a tensor that no consumer took over."""
    for name, layout in ((VERSIONED, Versioned), (LEGACY, Legacy)):
        if python.PyCapsule_IsValid(capsule, name):
            tensor = python.PyCapsule_GetPointer(capsule, name)
            DESTRUCTOR(layout.from_address(tensor).deleter)(tensor)


def capsule_of(tensor, max_version):
    """For a consumer that knows DLPack up to `max_version`."""
    name = VERSIONED
    if max_version is None or max_version[0] < 1:
        tensor, name = made("pinlane_dlpack_to_legacy", tensor), LEGACY
    return python.PyCapsule_New(tensor, name, ctypes.cast(delete_unused, c_void_p))


def take_over(producer, function, owner, *outputs, **arguments):
    """Makes a buffer of an array or tensor. `outputs` are those behind the handle."""
    capsule = producer.__dlpack__(max_version=(1, 0), **arguments)
    tensor = python.PyCapsule_GetPointer(id(capsule), VERSIONED)
    handle = c_void_p()
    call(function, owner, c_void_p(tensor), byref(handle), *outputs)
    python.PyCapsule_SetName(capsule, USED_VERSIONED)
    return handle


# --- Buffers -------------------------------------------------------------------------------------

class Options(Structure):
    """pinlane_dlpack_options."""
    _fields_ = [("size", c_size_t), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("offset_bytes", c_size_t), ("device_type", c_int32), ("flags", c_uint32),
                ("stream", c_void_p)]


class Strided(Structure):
    """pinlane_strided: where rows lie, in bytes."""
    _fields_ = [(name, c_size_t) for name in ("row_bytes", "rows", "pitch", "planes",
                                              "plane_pitch")]


class Layer(Structure):
    """pinlane_layer: the two sides of a copy of rows."""
    _fields_ = [("src", c_void_p), ("dst", c_void_p), ("src_bytes", c_size_t),
                ("dst_bytes", c_size_t), ("buffer", c_void_p), ("buffer_offset", c_size_t),
                ("device_buffer", c_void_p), ("device_offset", c_size_t), ("pinned", c_void_p)]


CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
CPU, CUDA = 1, 2


def tensor_of(function, handle, dtype, shape, stream=None):
    """Makes a tensor of a buffer, whose handle is freed. `dtype` is a numpy.dtype."""
    lengths = (c_int64 * len(shape))(*shape)
    options = Options(ctypes.sizeof(Options), lengths, None, len(shape), CODES[dtype.kind],
                      8 * dtype.itemsize, 1, 0, CPU, 0, stream)
    return made(function, handle, byref(options))


class Buffer:
    """A buffer in page-locked memory. `np.from_dlpack(buffer)` takes its memory over."""

    def __init__(self, handle, dtype=None, shape=None):
        self.handle, self.dtype, self.shape = handle, dtype, shape

    @classmethod
    def alloc(cls, pool, dtype, shape):
        """From a pool."""
        bytes = c_size_t(math.prod(shape) * dtype.itemsize)
        return cls(made("pinlane_buffer_alloc", pool, bytes), dtype, shape)

    @classmethod
    def of(cls, device, array):
        """A buffer of an array's memory, page-locked in place. Do not use it until `free`."""
        return cls(take_over(array, "pinlane_buffer_from_dlpack", device))

    @classmethod
    def strided(cls, device, array):
        """A buffer of an array that may have gaps, such as columns, and where its rows lie."""
        rows = Strided()
        function = "pinlane_buffer_from_dlpack_strided"
        return cls(take_over(array, function, device, byref(rows))), rows

    def address(self):
        return made("pinlane_buffer_address", self.handle).value

    def size(self):
        bytes = c_size_t()
        call("pinlane_buffer_size", self.handle, byref(bytes))
        return bytes.value

    def free(self):
        call("pinlane_buffer_free", self.handle)

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        # Waits for the device.
        tensor = tensor_of("pinlane_buffer_into_dlpack", self.handle, self.dtype, self.shape)
        return capsule_of(tensor, max_version)


class DeviceBuffer:
    """A buffer in the memory of GPU 0. `torch.from_dlpack(buffer)` takes its memory over."""

    def __init__(self, device, handle, dtype, shape):
        self.device, self.handle, self.dtype, self.shape = device, handle, dtype, shape

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        # The consumer's stream. None and -1 stand for the legacy default stream, which is 1.
        native = c_void_p(1 if stream in (None, -1) else stream)
        consumer = made("pinlane_stream_borrow", self.device, native)
        try:
            tensor = tensor_of("pinlane_device_buffer_into_dlpack", self.handle, self.dtype,
                               self.shape, consumer)
        finally:
            call("pinlane_stream_free", consumer)
        return capsule_of(tensor, max_version)


# --- The example ---------------------------------------------------------------------------------

def check(holds, what):
    if not holds:
        sys.exit(f"dlpack.py: not so: {what}")


def live_bytes(pool):
    """The fifth member of pinlane_pool_stats, a struct of 25 numbers."""
    stats = (c_size_t * 25)(25 * 8)
    call("pinlane_pool_get_stats", pool, stats)
    return stats[4]


def on_the_gpu(np, torch, device, pool, stream):
    zero, bytes = c_size_t(0), c_size_t(48)
    expected = np.arange(12, dtype=np.float32)

    # A buffer becomes a tensor; PyTorch's stream waits for the upload.
    host = Buffer.of(device, expected.copy())
    gpu = made("pinlane_device_buffer_alloc", device, bytes)
    address = made("pinlane_device_buffer_address", gpu).value
    call("pinlane_device_buffer_upload", stream, host.handle, zero, gpu, zero, bytes, None)
    tensor = torch.from_dlpack(DeviceBuffer(device, gpu, expected.dtype, (3, 4)))
    check(tensor.is_cuda and tensor.data_ptr() == address, "the tensor is the device buffer")
    check(np.array_equal(tensor.cpu().numpy().reshape(12), expected), "it holds what was uploaded")
    host.free()

    # A tensor becomes a buffer; the stream waits for PyTorch's kernel.
    doubled = torch.arange(12, dtype=torch.float32, device="cuda") * 2
    native = made("pinlane_stream_native", stream).value
    gpu = take_over(doubled, "pinlane_device_buffer_from_dlpack", stream, stream=native)
    check(made("pinlane_device_buffer_address", gpu).value == doubled.data_ptr(),
          "the device buffer is the tensor")
    back = Buffer.alloc(pool, expected.dtype, (12,))
    call("pinlane_device_buffer_download", stream, gpu, zero, back.handle, zero, bytes, None)
    check(np.array_equal(np.from_dlpack(back), expected * 2), "it holds what PyTorch computed")
    call("pinlane_device_buffer_free", gpu)


def main():
    import numpy as np

    device = made("pinlane_device_open_or_emulated")
    pool = made("pinlane_pool_create", device, None)
    stream = made("pinlane_stream_create", device, None)
    gpu = made("pinlane_device_buffer_alloc", device, c_size_t(48))
    zero, bytes = c_size_t(0), c_size_t(48)

    # A buffer of the pool becomes an array.
    buffer = Buffer.alloc(pool, np.dtype(np.float32), (3, 4))
    address = buffer.address()
    array = np.from_dlpack(buffer)
    check(array.ctypes.data == address and array.shape == (3, 4), "the array is the buffer")
    array[:] = np.arange(12).reshape(3, 4)
    check(live_bytes(pool) > 0, "the array keeps the memory")

    # An array becomes a buffer, and its memory goes to the device and back.
    theirs = np.arange(12, dtype=np.float32)
    mine = Buffer.of(device, theirs)
    check(mine.address() == theirs.ctypes.data, "the buffer is the array")
    call("pinlane_device_buffer_upload", stream, mine.handle, zero, gpu, zero, bytes, None)
    back = Buffer.alloc(pool, np.dtype(np.float32), (12,))
    call("pinlane_device_buffer_download", stream, gpu, zero, back.handle, zero, bytes, None)
    references = sys.getrefcount(theirs)
    mine.free()  # waits for the copy; then the array is ours alone again
    check(sys.getrefcount(theirs) == references - 1, "the buffer has let go of the array")
    landed = np.from_dlpack(back)  # waits for the copy
    check(np.array_equal(landed, theirs) and np.array_equal(landed.reshape(3, 4), array),
          "what came back is what went")

    # Columns of an array go to the device without a copy on the host.
    matrix = np.arange(24, dtype=np.float32).reshape(4, 6)
    columns, rows = Buffer.strided(device, matrix[:, 2:5])
    check(columns.address() == matrix[:, 2:].ctypes.data, "the buffer begins in the array")
    check((rows.row_bytes, rows.rows, rows.pitch, rows.planes) == (12, 4, 24, 1),
          "the rows are those of the columns")
    sides = Layer(None, None, columns.size(), 48, columns.handle, 0, gpu, 0, None)
    call("pinlane_upload_strided", stream, byref(sides), byref(rows), None, None)
    back = Buffer.alloc(pool, np.dtype(np.float32), (4, 3))
    call("pinlane_device_buffer_download", stream, gpu, zero, back.handle, zero, bytes, None)
    columns.free()  # waits for the copy
    check(np.array_equal(np.from_dlpack(back), matrix[:, 2:5]), "the columns have arrived")
    # One column alone: each element is a row.
    column, rows = Buffer.strided(device, matrix[:, 2])
    check((rows.row_bytes, rows.rows, rows.pitch, rows.planes) == (4, 4, 24, 1),
          "the rows are the elements of the column")
    column.free()

    # The memory goes back to the pool when the last array is gone.
    view = array[1:]
    del array, landed
    check(live_bytes(pool) > 0 and view[0, 0] == 4, "a view keeps the memory")
    del view
    check(live_bytes(pool) == 0, "the pool has its memory back")
    unused = Buffer.alloc(pool, np.dtype(np.int64), (5,)).__dlpack__()
    check(live_bytes(pool) > 0, "a capsule keeps the memory")
    del unused
    check(live_bytes(pool) == 0, "a capsule that no consumer takes gives it back")

    who = f"NumPy {np.__version__}"
    try:
        import torch
    except ImportError:
        pass
    else:
        who += f", PyTorch {torch.__version__}"
        buffer = Buffer.alloc(pool, np.dtype(np.float32), (3, 4))
        address = buffer.address()
        tensor = torch.from_dlpack(buffer)
        check(tensor.data_ptr() == address and tensor.shape == (3, 4), "the tensor is the buffer")
        del tensor
        check(live_bytes(pool) == 0, "the pool has its memory back")
        gpus = c_int32()
        call("pinlane_device_count", byref(gpus))
        if gpus.value > 0 and torch.cuda.is_available():
            on_the_gpu(np, torch, device, pool, stream)
            who += " on host and GPU"

    call("pinlane_device_buffer_free", gpu)
    call("pinlane_stream_free", stream)
    call("pinlane_pool_free", pool)
    call("pinlane_device_free", device)
    print(f"buffers and arrays share their memory: {who}")


if __name__ == "__main__":
    main()
