# SPDX-License-Identifier: MIT
"""The ctypes declarations say what a C compiler makes of the headers.

Usage: test_abi.py INCLUDE_FOLDER[,FOLDER...]"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import unittest

from attn_scores import _abi, errors

HEADERS = ("attn_scores/attn_scores.h", "attn_scores/python.h")


def structs():
    """Those of the headers; dlpack.h may be too old for the versioned ones."""
    found = [value for name, value in vars(_abi).items()
             if isinstance(value, type) and issubclass(value, ctypes.Structure) and name.startswith("attns_")]
    return [*found, _abi.DLTensor, _abi.DLManagedTensor]


class AbiTest(unittest.TestCase):
    folders = []

    def run_c(self, body):
        with tempfile.TemporaryDirectory() as folder:
            source, program = f"{folder}/abi.c", f"{folder}/abi"
            with open(source, "w", encoding="utf-8") as stream:
                stream.write(f"#include <{HEADERS[-1]}>\n#include <stdio.h>\nint main(void) {{\n{body}\nreturn 0;\n}}\n")
            flags = [f"-I{path}" for path in self.folders]
            subprocess.run(["cc", "-std=c11", *flags, source, "-o", program], check=True)
            return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()

    def test_offsets(self):
        expected, lines = [], []
        for struct in structs():
            name = struct.__name__
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {ctypes.sizeof(struct)}")
            for field, _ in struct._fields_:
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                             f'sizeof((({name} *)0)->{field}));')
                place = getattr(struct, field)
                expected.append(f"{name}.{field} {place.offset} {place.size}")
        self.assertEqual(self.run_c("\n".join(lines)), expected)

    def test_constants(self):
        constants = {
            "ATTNS_VERSION_MAJOR": _abi.VERSION[0], "ATTNS_VERSION_MINOR": _abi.VERSION[1],
            "ATTNS_DTYPE_F32": _abi.F32, "ATTNS_DTYPE_F16": _abi.F16, "ATTNS_DTYPE_BF16": _abi.BF16,
            "ATTNS_ERROR_INTERNAL": max(errors.BY_STATUS), "kDLCPU": _abi.DL_CPU, "kDLCUDA": _abi.DL_CUDA,
            "kDLCUDAHost": _abi.DL_CUDA_HOST, "kDLCUDAManaged": _abi.DL_CUDA_MANAGED, "kDLInt": _abi.DL_INT,
            "kDLUInt": _abi.DL_UINT, "kDLFloat": _abi.DL_FLOAT, "kDLBfloat": _abi.DL_BFLOAT,
            "ATTNS_PYTHON_OUT_IN_PART": _abi.OUT_IN_PART, "ATTNS_PYTHON_OUT_DTYPE": _abi.OUT_DTYPE,
            **{f"ATTNS_OPERATION_{name[len('attns_'):].upper()}": value for name, value in _abi.OPERATIONS.items()},
            **{f"ATTNS_VARIANT_{name.upper()}": value for name, value in _abi.VARIANTS.items()},
        }
        lines = [f'printf("{name} %d\\n", (int){name});' for name in constants]
        self.assertEqual(self.run_c("\n".join(lines)), [f"{name} {value}" for name, value in constants.items()])

    def test_every_struct_field_is_declared(self):
        """No field of a header is missing at the end of a struct, where offsets would not show it; and structs have
        all fields in the header's order."""
        text = ""
        for header in HEADERS:
            (path,) = [os.path.join(folder, header) for folder in self.folders
                       if os.path.exists(os.path.join(folder, header))]
            with open(path, encoding="utf-8") as stream:
                text += re.sub(r"/\*.*?\*/", "", stream.read(), flags=re.S)
        bodies = dict(re.findall(r"typedef struct (attns_\w+) \{(.*?)\} \1;", text, flags=re.S))
        declared = {s.__name__: [name for name, _ in s._fields_] for s in structs() if s.__name__.startswith("attns_")}
        # Function pointers are int (*name)(arguments).
        bodies = {name: re.sub(r"\(\*(\w+)\)\([^;]*\);", r"\1;", body) for name, body in bodies.items()}
        fields = {name: re.findall(r"(\w+)(?:\[\d+\])?(?=[;,])", body) for name, body in bodies.items()}
        self.assertEqual(declared, fields)

    def test_statuses(self):
        with_status = {value for value in vars(errors).values()
                       if isinstance(value, type) and value is not errors.AttnScoresError}
        self.assertEqual(set(errors.BY_STATUS.values()), with_status)
        self.assertEqual(sorted(errors.BY_STATUS), list(range(1, 11)))


if __name__ == "__main__":
    AbiTest.folders = sys.argv.pop(1).split(",")
    unittest.main(verbosity=2)
