# SPDX-License-Identifier: Apache-2.0
"""ebb in Python. `ebb.torch` trains PyTorch models inside a memory budget, and records them; `ebb.planning` plans programs;
`ebb.trace` writes trace files."""

__version__ = "0.1.0"
