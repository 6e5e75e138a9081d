# SPDX-License-Identifier: MIT
"""Device memory without a GPU framework: the CUDA driver that libattn_scores opens ($ATTNS_LIBCUDA), through ctypes,
and arrays in its memory that speak DLPack. Needs no numpy."""
import ctypes
import os

from attn_scores import _abi

DTYPES = {  # name: (DLPack code, bits)
    "uint8": (1, 8), "int8": (0, 8), "int32": (0, 32), "int64": (0, 64), "float16": (2, 16), "float32": (2, 32),
    "bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
}

driver = ctypes.CDLL(os.environ.get("ATTNS_LIBCUDA", "libcuda.so.1"))
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def check(result):
    if result:
        raise RuntimeError(f"the driver returned {result}")


def use_device(ordinal=0):
    """Makes the device's primary context current on this thread."""
    check(driver.cuInit(0))
    context = ctypes.c_void_p()
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal))
    check(driver.cuCtxSetCurrent(context))


def new_stream():
    stream = ctypes.c_void_p()
    check(driver.cuStreamCreate(ctypes.byref(stream), 1))
    return stream.value


def synchronize():
    check(driver.cuCtxSynchronize())


def dense(shape):
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return tuple(strides)


class DeviceArray:
    """Bytes in device memory, seen as an array. `versioned` and `flags` say what its __dlpack__ hands out."""

    def __init__(self, shape, dtype, data=None, strides=None, versioned=True, flags=0, memory=None, offset=0):
        self.shape, self.dtype, self.strides = tuple(shape), dtype, tuple(strides or dense(shape))
        self.versioned, self.flags, self.offset = versioned, flags, offset
        self.requests = []  # keyword arguments of the __dlpack__ calls
        self.exports = []
        if memory is None:
            size = 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides)) if all(self.shape) else 0
            self.bytes = size * self.itemsize
            memory = ctypes.c_uint64()
            check(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(max(self.bytes, 16))))
            memory = memory.value
        self.memory = memory
        if data is not None:
            self.write(data)

    @property
    def itemsize(self):
        return DTYPES[self.dtype][1] // 8

    def write(self, data):
        data = bytes(data)
        check(driver.cuMemcpyHtoD_v2(ctypes.c_uint64(self.memory), data, ctypes.c_size_t(len(data))))

    def read(self):
        """All bytes of a new array, what lies between rows included."""
        synchronize()
        data = ctypes.create_string_buffer(self.bytes)
        check(driver.cuMemcpyDtoH_v2(data, ctypes.c_uint64(self.memory), ctypes.c_size_t(self.bytes)))
        return data.raw

    def free(self):
        check(driver.cuMemFree_v2(ctypes.c_uint64(self.memory)))

    def view(self, shape, strides, offset=0):
        """Another view of the memory; `offset` in bytes."""
        return DeviceArray(shape, self.dtype, strides=strides, memory=self.memory, offset=offset)

    def __dlpack_device__(self):
        return (_abi.DL_CUDA, 0)

    def __dlpack__(self, *, stream=None, **options):
        if options and not self.versioned:
            raise TypeError("unexpected keyword arguments, as before DLPack 1.0")
        self.requests.append({"stream": stream, **options})
        managed = (_abi.DLManagedTensorVersioned if self.versioned else _abi.DLManagedTensor)()
        tensor = managed.dl_tensor
        tensor.data, tensor.byte_offset = self.memory, self.offset
        tensor.device = _abi.DLDevice(*self.__dlpack_device__())
        tensor.ndim = len(self.shape)
        tensor.dtype = _abi.DLDataType(*DTYPES[self.dtype], 1)
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        strides = (ctypes.c_int64 * len(self.shape))(*self.strides)
        tensor.shape, tensor.strides = shape, strides
        if self.versioned:
            managed.version = _abi.DLPackVersion(1, 1)
            managed.flags = self.flags
        self.exports.append((managed, shape, strides))
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return _new_capsule(ctypes.addressof(managed), name, None)
