# SPDX-License-Identifier: MIT
"""Build hook: takes libattn_scores into the wheel, from $ATTN_SCORES_LIBRARY or the build folder of the source tree.

A wheel with the library is for the platform it was built on; it needs libsodium there, as the library does. Without the
library the wheel is pure Python and finds one at run time.
"""
import os
import sysconfig
from typing import Any, Dict, Optional

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "libattn_scores.so.0"


class BundleLibrary(BuildHookInterface):
    def library(self) -> Optional[str]:
        chosen = os.environ.get("ATTN_SCORES_LIBRARY")
        if chosen is not None:
            if chosen and not os.path.isfile(chosen):
                raise FileNotFoundError(f"ATTN_SCORES_LIBRARY: {chosen} is no file")
            return chosen or None  # empty: none is wanted
        built = os.path.join(self.root, "..", "..", "build", "src", NAME)
        return built if os.path.isfile(built) else None

    def initialize(self, version: str, build_data: Dict[str, Any]) -> None:
        library = self.library()
        if version == "editable" or library is None:
            return
        build_data["force_include"][os.path.realpath(library)] = f"attn_scores/{NAME}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
