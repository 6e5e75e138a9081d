# SPDX-License-Identifier: MIT
"""Exceptions: one class for each status of the library. Messages are the library's own."""


class AttnScoresError(Exception):
    """Base class of all exceptions that carry a status of libattn_scores."""


class InvalidArgumentError(AttnScoresError, ValueError):
    """An argument is missing, malformed or inconsistent with another. Names it, the value and what is accepted."""


class UnsupportedError(AttnScoresError, ValueError):
    """Well formed, but no kernel exists for this shape, dtype or option."""


class UnsupportedDeviceError(AttnScoresError, RuntimeError):
    """The library has no kernels for the device or the compile target."""


class LibraryNotFoundError(AttnScoresError, ImportError):
    """libattn_scores, libcuda or libnvrtc is needed and could not be opened."""


class CompileError(AttnScoresError, RuntimeError):
    """NVRTC refused a kernel; the message holds its log."""


class WouldCompileError(AttnScoresError, RuntimeError):
    """The kernel is in no cache and must not be compiled now: a stream capture, or forbid_compile."""


class CudaError(AttnScoresError, RuntimeError):
    """A driver call failed."""


class OutOfMemoryError(AttnScoresError, MemoryError):
    """A host allocation failed."""


class FileError(AttnScoresError, OSError):
    """A file named by the caller could not be read or written."""


class InternalError(AttnScoresError, RuntimeError):
    """A defect of the library."""


BY_STATUS = {
    1: InvalidArgumentError, 2: UnsupportedError, 3: UnsupportedDeviceError, 4: LibraryNotFoundError, 5: CompileError,
    6: WouldCompileError, 7: CudaError, 8: OutOfMemoryError, 9: FileError, 10: InternalError,
}
