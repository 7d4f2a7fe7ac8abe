# SPDX-License-Identifier: Apache-2.0
"""ebb in Python: recorders that write ebb's traces. `ebb.torch` records PyTorch; `ebb.trace` writes the file."""

__version__ = "0.1.0"
